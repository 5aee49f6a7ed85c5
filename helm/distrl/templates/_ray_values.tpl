{{/* Values that `mode: ray` refuses. */}}

{{/* The defaults of learner and actors in values.yaml that are not empty: templates cannot read that file. */}}
{{- define "distrl.podsDefaults" -}}
learner:
  backoffLimit: 6
  ttlSecondsAfterFinished: 604800
  terminationGracePeriodSeconds: 120
  sharedMemory: 1Gi
  resources:
    requests: {cpu: "2", memory: 4Gi}
    limits: {cpu: "4", memory: 8Gi}
actors:
  replicas: 2
  perPod: 2
  terminationGracePeriodSeconds: 60
  sharedMemory: 256Mi
  tmpSize: 1Gi
  maxUnavailable: 50%
  resources:
    requests: {cpu: "2", memory: 2Gi}
    limits: {cpu: "3", memory: 4Gi}
{{- end -}}

{{/* Refuse values of learner and actors that a RayJob does not use. */}}
{{- define "distrl.refusePodsValues" -}}
{{- $values := dict "learner" (omit .Values.learner "tmpSize" "waitSeconds") "actors" .Values.actors -}}
{{- range $component, $defaults := include "distrl.podsDefaults" . | fromYaml -}}
{{- range $name, $given := get $values $component -}}
{{- if and $given (ne (toJson $given) (get $defaults $name | toJson)) -}}
{{- fail (printf "%s.%s has no use with mode: ray: the values of its Pods are in ray" $component $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuse sizes of Ray's nodes and bounds of its autoscaler that contradict each other. */}}
{{- define "distrl.requireRaySizes" -}}
{{- range $group := list "head" "learner" "actors" -}}
{{- $values := get $.Values.ray $group -}}
{{- $component := printf "ray.%s" $group -}}
{{- include "distrl.requireMemory" (dict "name" (printf "%s.sharedMemory" $component) "size" $values.sharedMemory "component" $component "values" $values) -}}
{{- end -}}
{{- with .Values.ray.autoscaler -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail (printf "ray.autoscaler.minReplicas: %v is more than ray.autoscaler.maxReplicas: %v" .minReplicas .maxReplicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}
