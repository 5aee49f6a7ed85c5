{{/* Values that a mode refuses. */}}

{{/* The defaults in values.yaml, but the empty ones, of what only mode: pods uses: templates cannot read that file. */}}
{{- define "distrl.podsDefaults" -}}
images:
  actor: {repository: distrl/actor}
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

{{/* As distrl.podsDefaults, of what only mode: ray uses. */}}
{{- define "distrl.rayDefaults" -}}
ray:
  version: 2.60.0
  backoffLimit: 3
  deleteAfterSeconds: 300
  terminationGracePeriodSeconds: 120
  head:
    resources:
      requests: {cpu: "2", memory: 4Gi}
      limits: {cpu: "2", memory: 4Gi}
    sharedMemory: 1Gi
  learner:
    resources:
      requests: {cpu: "2", memory: 8Gi}
      limits: {cpu: "2", memory: 8Gi}
    sharedMemory: 2Gi
  actors:
    replicas: 1
    resources:
      requests: {cpu: "4", memory: 8Gi}
      limits: {cpu: "4", memory: 8Gi}
    sharedMemory: 1Gi
  autoscaler:
    minReplicas: 1
    maxReplicas: 8
    idleTimeoutSeconds: 300
    resources:
      requests: {cpu: 200m, memory: 512Mi}
      limits: {cpu: 500m, memory: 512Mi}
{{- end -}}

{{/* Refuse values that only the other mode uses: they would do nothing. */}}
{{- define "distrl.refuseOtherMode" -}}
{{- if eq .Values.mode "ray" -}}
{{- $given := dict "images" (pick .Values.images "actor") "learner" (omit .Values.learner "tmpSize" "waitSeconds") "actors" .Values.actors -}}
{{- $why := "mode: ray: all its nodes run images.learner, and their values are in ray" -}}
{{- include "distrl.refuseUnused" (dict "path" "" "given" $given "defaults" (include "distrl.podsDefaults" . | fromYaml) "why" $why) -}}
{{- else -}}
{{- $why := "mode: pods: set mode: ray, or leave it out" -}}
{{- include "distrl.refuseUnused" (dict "path" "" "given" (pick .Values "ray") "defaults" (include "distrl.rayDefaults" . | fromYaml) "why" $why) -}}
{{- end -}}
{{- end -}}

{{/* Refuse each given value that is not its default. Arguments: path (of given), given, defaults, why. */}}
{{- define "distrl.refuseUnused" -}}
{{- range $name, $value := .given -}}
{{- $default := get $.defaults $name -}}
{{- if and (kindIs "map" $value) (kindIs "map" $default) -}}
{{- include "distrl.refuseUnused" (dict "path" (printf "%s%s." $.path $name) "given" $value "defaults" $default "why" $.why) -}}
{{- else if and (or $value $default) (ne (toJson $value) (toJson $default)) -}}
{{- fail (printf "%s%s has no use with %s" $.path $name $.why) -}}
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
