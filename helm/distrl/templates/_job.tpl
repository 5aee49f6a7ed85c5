{{/* job.yaml: the configuration, and the settings that follow from where the run is. */}}
{{- define "distrl.job" -}}
{{- $config := .Values.run.config -}}
{{- $memory := dict "url" (include "distrl.redisUrl" (dict "root" . "user" "learner")) -}}
{{- if include "distrl.caSecretName" . -}}
{{- $_ := set $memory "tls" (dict "ca_file" "/etc/distrl/redis-ca/ca.crt") -}}
{{- end -}}
{{- $launch := dict "wait_s" (int .Values.learner.waitSeconds) "sigterm_exit_code" 143 -}}
{{- $chart := dict "memory" $memory "launch" $launch -}}
{{- if eq .Values.mode "ray" -}}
{{- $_ := set $chart "launch" (merge $launch (dict "launcher" "ray" "ray_address" "auto" "wait_for_nodes" true "print_logs" true)) -}}
{{- else -}}
{{- $_ := set $chart "actors" (dict "count" (mul (int .Values.actors.replicas) (int .Values.actors.perPod))) -}}
{{- end -}}
{{- $gpus := include "distrl.learnerGpus" . | int -}}
{{- $replicas := get ($config.learner | default dict) "replicas" | default $gpus | int -}}
{{- if and $gpus (ne $gpus $replicas) -}}
{{- fail (printf "learner.gpus: %d and run.config.learner.replicas: %d differ: set learner.gpus alone" $gpus $replicas) -}}
{{- end -}}
{{- if $gpus -}}
{{- $_ := set $chart "learner" (dict "device" "gpu") -}}
{{- end -}}
{{- range $section, $fields := $chart -}}
{{- range $field, $value := $fields -}}
{{- if hasKey (get $config $section | default dict) $field -}}
{{- fail (printf "run.config.%s.%s is set by the chart: leave it out of run.config" $section $field) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if gt $gpus 1 -}}
{{- $_ := set $chart.learner "replicas" $gpus -}}
{{- end -}}
{{- mustMergeOverwrite (deepCopy $config) $chart | toYaml -}}
{{- end -}}
