"""What is right, in float64: one module per subject, written for reading and with NumPy alone.

Arrays of any real dtype go in, float64 comes out. Nothing here knows MLX, an implementation or a tolerance, and no
result is produced twice by the same code: ``tests/conformance/oracle`` holds a second derivation, element by
element, and ``tests/evidence`` compares with PyTorch, ONNX and 50-digit arithmetic.
"""
