"""Run ONNX graphs in tests."""

import onnx
import onnxruntime


def outputs(graph, **inputs):
    """Check the graph, and run it as it is, without optimization."""
    onnx.checker.check_model(graph, full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)[0]
