import { isJsonObject, type Json, memberOf } from '../json/value.ts'
import { bundleForms, hexOf } from './bundle-forms.ts'

const { arrayOf, countOf, invalid, textOf } = bundleForms

const ADDRESS_BYTES = 20

/** The facts in an enclave's boot configuration that are compared with a record. */
export type BootFacts = {
  readonly chainId: number
  /** The anchor contract: 0x, lower case. */
  readonly contract: string
  readonly providers: readonly { readonly name: string; readonly origin: string }[]
}

/**
 * Reads attacker-controlled `json`, a boot configuration. It may have other members. The digest
 * covers them too. It must not have a member `format` (headAttestationUserData). Throws FormatError
 * `invalid_bundle` naming the member. Does NOT prove that an enclave booted with this
 * configuration: compare digestBootConfiguration with the attestation document.
 */
export function parseBootConfiguration(json: Json): BootFacts {
  const members = isJsonObject(json) ? json : {}
  // Head statements have a member `format`. A boot configuration without this member has another
  // digest than any head statement.
  if (Object.hasOwn(members, 'format'))
    throw invalid('boot_configuration', 'without a member format')
  const providers = arrayOf(memberOf(members, 'providers'), 'boot_configuration.providers')
  return {
    chainId: countOf(memberOf(members, 'chain_id'), 'boot_configuration.chain_id'),
    contract: hexOf(memberOf(members, 'contract'), 'boot_configuration.contract', {
      exactly: ADDRESS_BYTES,
    }),
    providers: providers.map((json, at) => {
      const provider = isJsonObject(json) ? json : {}
      const where = `boot_configuration.providers.${at}`
      return {
        name: textOf(memberOf(provider, 'name'), `${where}.name`),
        origin: textOf(memberOf(provider, 'origin'), `${where}.origin`),
      }
    }),
  }
}
