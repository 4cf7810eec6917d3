version: str
fabric_version: str

class MooncakeEngine: ...
