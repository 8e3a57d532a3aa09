"""Run, check and publish the lesson pages."""
