import { stripUnsetMembers } from '../completion-hash.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from '../json/value.ts'
import { BUNDLE_FORMAT, type BundleBlock, type EvidenceBundle, parseEvidenceBundle } from './bundle.ts'

/**
 * The bundle of a stored record as it is served (interface 2.4, with `receipt` and `log`), with what the gateway
 * keeps beside it. Leaves out the record's `id` and the request's unset members, which nothing binds. Throws
 * FormatError as parseEvidenceBundle.
 *
 * Does NOT check that the parts belong together: see verifyBundle.
 */
export function createBundle(parts: {
  readonly record: JsonObject
  readonly bootConfiguration: JsonObject
  /** Raw anchor transaction, 0x hex. */
  readonly transaction: string
  readonly block: BundleBlock | null
}): EvidenceBundle {
  const { id: _, ...record } = parts.record
  const request: Json = memberOf(record, 'request') ?? null
  const receipt = memberOf(record, 'receipt')
  return parseEvidenceBundle({
    format: BUNDLE_FORMAT,
    version: isJsonObject(receipt) ? (memberOf(receipt, 'version') ?? null) : null,
    record: { ...record, request: isJsonObject(request) ? stripUnsetMembers(request) : request },
    boot_configuration: parts.bootConfiguration,
    transaction: parts.transaction,
    block: parts.block,
  })
}
