"""Pages are opened as files, without a network."""

import pytest


@pytest.fixture
def visit(browser):
    """Return a function that opens a file; finally check that nothing failed or was loaded."""
    trouble, contexts = [], []

    def open_page(file, address="", width=1440, height=900, **options):
        context = browser.new_context(
            viewport={"width": width, "height": height}, offline=True, **options
        )
        context.set_default_timeout(10_000)
        contexts.append(context)
        page, own = context.new_page(), (file.as_uri(), "data:", "blob:")
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("console", lambda message: trouble.append(message.text))
        page.on(
            "request",
            lambda request: None if request.url.startswith(own) else trouble.append(request.url),
        )
        page.goto(file.as_uri() + address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []
