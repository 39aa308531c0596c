"""Counting and scoring on Apache Spark: what one machine does, with the same numbers, on many. pyspark is imported only here,
and only when it is asked for."""
