"""The operators: a folder for each, and the table that lists them."""

from dmlcpu.directml.operator_type import OperatorType as OperatorType
from dmlcpu.operators.table import OPERATORS as OPERATORS, Operator as Operator
