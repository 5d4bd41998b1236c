"""How fast this machine is, and the fraction that each operator reaches: ``dmlcpu info --measure``."""

from dmlcpu.measure.limits import Limits as Limits, measure_limits as measure_limits
from dmlcpu.measure.measurement import Measurement as Measurement, measure as measure
