import { ProviderEvidenceError } from '../provider-error.ts'

/** The checks in the order of the report. Each text is true if its check passed. */
export const DSTACK_CHECKS = {
  'event log': 'a list of events with registers, types and digests',
  'register replay': 'the digests of the events give RTMR0 to RTMR3 of the quote',
  'system events': 'the system logged its events before it was ready, each once',
  'compose hash': 'the application is the accepted one',
  'application id': 'the application id is the accepted one',
  'configuration id': 'MRCONFIGID states the same application',
  'OS image': 'the measurements are those of an accepted image',
  'OS image release': 'the image is not a development image',
} as const satisfies Readonly<Record<string, string>>

export type DstackCheckName = keyof typeof DSTACK_CHECKS

/** Each code belongs to one check. Codes are stable. */
export const DSTACK_CODES = {
  event_log_malformed: 'event log',
  event_log_too_long: 'event log',
  event_digest_mismatch: 'event log',
  event_digest_missing: 'event log',
  register_mismatch: 'register replay',
  system_event_disguised: 'system events',
  system_ready_missing: 'system events',
  system_event_missing: 'system events',
  system_event_repeated: 'system events',
  system_event_malformed: 'system events',
  compose_mismatch: 'compose hash',
  compose_not_accepted: 'compose hash',
  app_id_not_accepted: 'application id',
  config_id_form: 'configuration id',
  config_id_mismatch: 'configuration id',
  config_document_malformed: 'configuration id',
  config_document_mismatch: 'configuration id',
  os_image_not_accepted: 'OS image',
  os_image_hash_mismatch: 'OS image',
  os_image_metadata: 'OS image release',
  os_image_is_dev: 'OS image release',
} as const satisfies Readonly<Record<string, DstackCheckName>>

export type DstackCode = keyof typeof DSTACK_CODES

export function dstackFault(code: DstackCode, message: string): ProviderEvidenceError<DstackCode> {
  return new ProviderEvidenceError(code, message)
}
