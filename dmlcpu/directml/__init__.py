"""DirectML's rules for all operators: descs, feature levels, binding, compiled operators, models' JSON."""
