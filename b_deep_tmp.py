from tests.chaos.model import report, DEEP, DEFAULT
from tests.chaos.model_search import explore
done=set()
todo=[x for x in DEEP if x not in DEFAULT]
# those not run last session first
def late(x):
    p,b=x
    return 0 if ("orphan" in b or len(b)>=3 or p=="hot" or sum(b.values())>=4) else 1
for pol,b in sorted(todo,key=late):
    print(report(explore(pol,b))[:3000],flush=True)
print("DONE",flush=True)
