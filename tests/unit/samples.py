"""Values that several unit tests share."""

from kernelwright.model import (
    Argument,
    Call,
    Document,
    Graph,
    Hardware,
    Inputs,
    Node,
    Parameter,
    Placeholder,
    Scalar,
    Span,
    Target,
    Task,
    TensorSpec,
)

SOURCE = "def scale(x, factor=2.0):\n    return x * factor\n"
DOCUMENT = Document("file:///scale.py", "/scale.py", f"import torch\n\n\n{SOURCE}")
TARGET = Target(DOCUMENT, "scale", SOURCE, Span(3, 0, 4, 21), 3, (Parameter("x"), Parameter("factor", default="2.0")))
HARDWARE = Hardware(None, ("sm_90",), "2.13.0", "3.7.1", "3.11")
CALL = Call(0, (Argument("x", TensorSpec("float32", (512, 4096), (4096, 1))), Argument("factor", value=2.0)))
GRAPH = Graph(
    calls=(0,),
    placeholders=(Placeholder("x", "x", "float32", ("s0", "s1")),),
    nodes=(Node("mul", "aten.mul.Tensor", ({"node": "x"}, {"expr": "factor"}), {}, ("s0", "s1"), "float32", line=5),),
    output={"node": "mul"},
    symbols={"s0": 512, "s1": 4096},
    scalars=(Scalar("factor", "factor", "float", 2.0),),
    kind="pointwise",
)
INPUTS = Inputs("literal", "x: f32[512, 4096], factor=2.0", calls=(CALL,))
TASK = Task(TARGET, INPUTS, (GRAPH,), HARDWARE)
