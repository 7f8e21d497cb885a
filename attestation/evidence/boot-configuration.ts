import { encodeUtf8, sha256 } from '../bytes.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject, memberOf } from '../json/value.ts'
import { countOf, hexOf, invalidBundle } from './bundle-forms.ts'

/** What of an enclave's boot configuration a record is compared with. */
export type BootFacts = {
  readonly chainId: number
  /** The anchor contract: 0x, lower case. */
  readonly contract: string
  /** Where the enclave may send requests. */
  readonly providers: readonly { readonly name: string; readonly origin: string }[]
}

/**
 * What attacker-controlled `json`, a boot configuration, says. It may have more members than are
 * read here: all are part of its digest. A member `format` it has not (headAttestationUserData).
 * Throws FormatError `invalid_bundle` naming the member.
 *
 * Does NOT prove that an enclave booted with it: compare digestBootConfiguration with the
 * attestation document.
 */
export function parseBootConfiguration(json: Json): BootFacts {
  const members = isJsonObject(json) ? json : {}
  // What a head attestation's document states has one: neither passes for the other.
  if (Object.hasOwn(members, 'format'))
    throw invalidBundle('boot_configuration', 'without a member format')
  const providers = memberOf(members, 'providers')
  if (!isJsonArray(providers)) throw invalidBundle('boot_configuration.providers', 'an array')
  return {
    chainId: countOf(memberOf(members, 'chain_id'), 'boot_configuration.chain_id'),
    contract: hexOf(memberOf(members, 'contract'), 'boot_configuration.contract', {
      exactly: ADDRESS_BYTES,
    }),
    providers: providers.map((provider, at) => ({
      name: textOf(provider, `boot_configuration.providers.${at}`, 'name'),
      origin: textOf(provider, `boot_configuration.providers.${at}`, 'origin'),
    })),
  }
}

/**
 * What `user_data` of the enclave's attestation documents is: SHA-256 of the canonical JSON of its
 * boot configuration.
 */
export function digestBootConfiguration(configuration: JsonObject): Uint8Array {
  return sha256(encodeUtf8(canonicalizeJson(configuration)))
}

const ADDRESS_BYTES = 20

function textOf(json: Json, where: string, name: string): string {
  const text = isJsonObject(json) ? memberOf(json, name) : undefined
  if (typeof text !== 'string') throw invalidBundle(`${where}.${name}`, 'a string')
  return text
}
