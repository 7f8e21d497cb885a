import { isJsonArray, type Json, memberAt } from '#attestation/json/value.ts'
import { invalidReply } from './errors.ts'

/**
 * A gateway lists the providers of all its enclaves: at most 32 enclaves, each with at most 64
 * providers. While enclaves are replaced, their tables can differ.
 */
const PROVIDERS_MAX = 2_048

/** Nothing proves these statements of the gateway. */
export type ListedProvider = {
  readonly provider: string
  readonly origin: string
  readonly kind: string | null
  /** SHA-256 of the provider's newest evidence, hex. Null: the gateway has no evidence. */
  readonly digest: string | null
}

/**
 * Reads only the members that a request for evidence needs. Throws AffidavitError `invalid_reply`.
 */
export function readListedProviders(json: Json): readonly ListedProvider[] {
  const list = memberAt(json, 'data')
  if (!isJsonArray(list) || list.length > PROVIDERS_MAX)
    throw invalidReply(`/v1/providers: expected data to be an array of at most ${PROVIDERS_MAX}`)
  return list.map((entry) => {
    const hasNoEvidence = memberAt(entry, 'evidence') === null
    return {
      provider: textIn(entry, 'id'),
      origin: textIn(entry, 'origin'),
      kind: memberAt(entry, 'kind') === null ? null : textIn(entry, 'kind'),
      digest: hasNoEvidence ? null : textIn(memberAt(entry, 'evidence'), 'digest', DIGEST),
    }
  })
}

const DIGEST = /^[0-9a-f]{64}$/
const TEXT_MAX = 2_048

function textIn(json: Json | undefined, name: string, form = /^/): string {
  const text = memberAt(json, name)
  if (typeof text === 'string' && text.length <= TEXT_MAX && form.test(text)) return text
  throw invalidReply(`/v1/providers: expected a valid ${name} of each`)
}
