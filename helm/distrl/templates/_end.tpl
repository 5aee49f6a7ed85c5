{{/* Time that Pods need after SIGTERM, so that the training can save. */}}

{{/* Seconds for which the end of the training waits for a data store: learner, then parent (CheckpointConfig.end_s). */}}
{{- define "distrl.storeSeconds" -}}
{{- $checkpoint := .Values.run.config.checkpoint | default dict -}}
{{- if $checkpoint.store -}}
{{- mul 2 (get $checkpoint "store_give_up_s" | default 60 | ceil | int) -}}
{{- else -}}
0
{{- end -}}
{{- end -}}

{{/* Refuse a grace period that is too short. Arguments: root, name (of the value), given, needed (without a store). */}}
{{- define "distrl.requireGrace" -}}
{{- $store := include "distrl.storeSeconds" .root | int -}}
{{- $needed := add .needed $store -}}
{{- if lt (int .given) (int $needed) -}}
{{- fail (printf "%s: %d is too short for checkpoint.store, for which the end waits up to %d s: set at least %d" .name (int .given) $store $needed) -}}
{{- end -}}
{{- end -}}
