#!/bin/sh
# TaskProlog of slurm.conf, for sites without plugins: `USE_PROFD=1 sbatch train.sh` makes all that the job starts recordable.
# Slurm puts what is printed as `export NAME=VALUE` into the task's environment. docs/slurm.md.
startup=/opt/profd/lib/python3.11/site-packages/profclient/startup

case ${USE_PROFD:-} in
  on | 1 | yes | cuda) ;;
  iterations:*@step:* | duration:*@step:*) echo "export PROFD_CAPTURE=$USE_PROFD" ;;
  *) exit 0 ;;
esac
case :${PYTHONPATH:-}: in
  *":$startup:"*) ;;
  *) echo "export PYTHONPATH=$startup${PYTHONPATH:+:$PYTHONPATH}" ;;
esac
exit 0
