"""The mathematics of each method: functions from tables and parameters to models, which know no estimator."""
