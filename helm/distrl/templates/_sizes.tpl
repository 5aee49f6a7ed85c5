{{/* Sizes that must fit into each other. */}}

{{/* Bytes of a quantity of Kubernetes or of Redis. Redis' kb is 1,024 bytes. */}}
{{- define "distrl.bytes" -}}
{{- if kindIs "string" . -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $units = merge $units (dict "kb" 1024 "mb" 1048576 "gb" 1073741824) -}}
{{- mulf (regexFind "^[0-9.]+" .) (get $units (regexFind "[A-Za-z]*$" .)) | int64 -}}
{{- else -}}
{{- int64 . -}}
{{- end -}}
{{- end -}}

{{/* Refuse a part of the memory that is no less than the limit. Arguments: name, size, component, values. */}}
{{- define "distrl.requireMemory" -}}
{{- $limit := .values.resources.limits.memory -}}
{{- if ge (include "distrl.bytes" .size | int64) (include "distrl.bytes" $limit | int64) -}}
{{- fail (printf "%s: %s must be less than %s.resources.limits.memory: %v, of which it is a part" .name .size .component $limit) -}}
{{- end -}}
{{- end -}}
