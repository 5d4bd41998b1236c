"""The operators: a folder each, and the table that says which there are."""

from dmlcpu.directml.operator_type import OperatorType as OperatorType
from dmlcpu.operators.table import OPERATORS as OPERATORS, Operator as Operator
