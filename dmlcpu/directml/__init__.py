"""What DirectML has in common for all operators: descs, feature levels, binding, compiled operators, models' JSON."""
