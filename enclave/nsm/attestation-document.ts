import { sign } from 'node:crypto'
import {
  encodeArray,
  encodeBytes,
  encodeIndefiniteMap,
  encodeMap,
  encodeOptionalBytes,
  encodeText,
  encodeUnsigned,
} from './cbor.ts'
import type { SigningChain } from './certificate-chain.ts'
import type { AttestationInput } from './nsm.ts'

export type DocumentContent = AttestationInput & {
  readonly moduleId: string
  /** Unix milliseconds. */
  readonly timestampMs: number
  /** Locked registers by index, 48 bytes each, ascending. */
  readonly pcrs: readonly (readonly [index: number, value: Uint8Array])[]
}

/**
 * Gives the document: untagged COSE_Sign1 (RFC 9052) with ES384, protected header `a1013822`, the payload's members
 * in the order of AWS's documents and its map of indefinite length, as theirs has been since mid-2025. The signature
 * is r || s, 96 bytes; like theirs it may have a high s.
 */
export function signAttestationDocument(content: DocumentContent, chain: SigningChain): Uint8Array {
  const payload = encodePayload(content, chain)
  const toBeSigned = encodeArray([
    encodeText('Signature1'),
    encodeBytes(PROTECTED_ES384),
    encodeBytes(new Uint8Array()),
    encodeBytes(payload),
  ])
  const signature = sign('sha384', toBeSigned, { key: chain.privateKey, dsaEncoding: 'ieee-p1363' })
  return encodeArray([
    encodeBytes(PROTECTED_ES384),
    encodeMap([]),
    encodeBytes(payload),
    encodeBytes(signature),
  ])
}

/** {1: -35}: algorithm ES384. */
const PROTECTED_ES384 = Uint8Array.of(0xa1, 0x01, 0x38, 0x22)

function encodePayload(content: DocumentContent, chain: SigningChain): Uint8Array {
  const pcrs = content.pcrs.map(([index, value]) => [encodeUnsigned(index), encodeBytes(value)] as const)
  return encodeIndefiniteMap([
    [encodeText('module_id'), encodeText(content.moduleId)],
    [encodeText('digest'), encodeText('SHA384')],
    [encodeText('timestamp'), encodeUnsigned(content.timestampMs)],
    [encodeText('pcrs'), encodeMap(pcrs)],
    [encodeText('certificate'), encodeBytes(chain.certificate)],
    [encodeText('cabundle'), encodeArray(chain.cabundle.map(encodeBytes))],
    [encodeText('public_key'), encodeOptionalBytes(content.publicKey)],
    [encodeText('user_data'), encodeOptionalBytes(content.userData)],
    [encodeText('nonce'), encodeOptionalBytes(content.nonce)],
  ])
}
