"""Integer products: pack both operands, form exact sums tile by tile, hand each tile to an epilogue."""
