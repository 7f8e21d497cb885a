import { keccak_256 } from '@noble/hashes/sha3.js'
import { concatBytes, decodeHex, encodeUtf8, equalBytes, sha256 } from '../../bytes.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { memberOf } from '../../json/value.ts'
import {
  type Established,
  established,
  type NotMade,
  notGiven,
  waived,
} from '../provider-checks.ts'
import { orRefuse } from '../provider-error.ts'
import { dstackFault } from './dstack-codes.ts'

export type LoggedApplication = {
  readonly composeHash: Uint8Array
  readonly appId: Uint8Array
  /** JSON, the payload of the event `key-provider`. Null if the system logged no such event. */
  readonly keyProvider: Uint8Array | null
}

/**
 * Checks that MRCONFIGID (48 bytes, set by the host at the start) is for the logged application.
 * The first byte is the form. The next 32 bytes are a hash. In form 1, it is the hash of the
 * app_compose. In form 2, it is Keccak-256 of compose hash, app id and key provider. In form 3, it
 * is the hash of `document`. All other bytes are zero. If all 48 bytes are zero, no application is
 * stated, and the check is not made. Throws ProviderEvidenceError.
 */
export function checkConfigId(
  mrConfigId: Uint8Array,
  app: LoggedApplication,
  document: Uint8Array | null,
): Established<true> | NotMade {
  const form = mrConfigId[0]
  const stated = mrConfigId.subarray(1, 33)
  if (mrConfigId.every((byte) => byte === 0)) return waived('MRCONFIGID is zero')
  if (mrConfigId.subarray(33).some((byte) => byte !== 0))
    throw dstackFault('config_id_form', 'expected MRCONFIGID of a form, 32 bytes and zeros')
  switch (form) {
    case 1:
      return compare(stated, app.composeHash, 'form 1, the compose hash')
    case 2:
      return compare(stated, hashOfForm2(app), 'form 2, with the key provider')
    case 3:
      return document === null
        ? notGiven('the configuration document was')
        : checkDocument(stated, app, document)
    default:
      throw dstackFault('config_id_form', 'expected MRCONFIGID of form 1, 2 or 3')
  }
}

function compare(stated: Uint8Array, expected: Uint8Array, detail: string): Established<true> {
  if (!equalBytes(stated, expected))
    throw dstackFault('config_id_mismatch', 'expected MRCONFIGID of the logged application')
  return established(true, detail)
}

const KEY_PROVIDER_KINDS: Readonly<Record<string, number>> = {
  none: 0,
  'local-sgx': 1,
  kms: 2,
  tpm: 3,
}

function hashOfForm2({ composeHash, appId, keyProvider }: LoggedApplication): Uint8Array {
  if (keyProvider === null)
    throw dstackFault('config_id_mismatch', 'expected a logged key provider for MRCONFIGID')
  return orRefuse(dstackFault, 'config_id_mismatch', () => {
    const provider = forms.objectOf(parseExactJson(keyProvider), 'key-provider')
    const name = forms.textOf(memberOf(provider, 'name'), 'its name')
    const kind = Object.hasOwn(KEY_PROVIDER_KINDS, name) ? KEY_PROVIDER_KINDS[name] : undefined
    if (kind === undefined) throw forms.invalid('its name', 'a known key provider')
    const id = decodeHex(forms.textOf(memberOf(provider, 'id'), 'its id'))
    return keccak_256(concatBytes(composeHash, appId, Uint8Array.of(kind), id))
  })
}

const DOCUMENT_DOMAIN = encodeUtf8('dstack-mr-config-v3:\0')

/** The hash of the document's exact bytes, as MRCONFIGID or SNP's HOST_DATA has it. */
export function hashConfigDocument(document: Uint8Array): Uint8Array {
  return sha256(concatBytes(DOCUMENT_DOMAIN, document))
}

function checkDocument(
  stated: Uint8Array,
  { composeHash, appId }: LoggedApplication,
  document: Uint8Array,
): Established<true> {
  if (!equalBytes(stated, hashConfigDocument(document)))
    throw dstackFault('config_document_mismatch', 'expected the document that MRCONFIGID states')
  const config = orRefuse(dstackFault, 'config_document_malformed', () => {
    const object = forms.objectOf(parseExactJson(document), 'the document')
    const id = memberOf(object, 'app_id')
    return {
      composeHash: forms.hexOf(memberOf(object, 'compose_hash'), 'compose_hash', 32),
      appId: id === undefined ? null : forms.hexOf(id, 'app_id', 20),
    }
  })
  if (config.appId !== null) compare(decodeHex(config.appId), appId, '')
  return compare(decodeHex(config.composeHash), composeHash, 'form 3, the document')
}

const forms = formsOf('config', 'configuration: ')
