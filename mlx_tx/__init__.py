"""mlx-tx: the full Transformer for MLX, with fused attention in which every feature composes."""

__version__ = "0.1.0"
