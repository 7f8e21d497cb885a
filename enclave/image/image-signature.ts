import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { p384 } from '@noble/curves/nist.js'
import { parseSigningCertificate } from '#attestation/eif/signature.ts'
import {
  encodeArray,
  encodeBytes,
  encodeMap,
  encodeText,
  encodeUnsigned,
} from '../protocol/cbor.ts'

export type ImageSigner = {
  /** The certificate as PEM, exactly as it is stored in the image. */
  readonly certificate: Uint8Array
  readonly key: KeyObject
}

/** The key or the certificate for signing images is not valid. The operator must correct this. */
export class SignerError extends Error {
  override readonly name = 'SignerError'
}

/**
 * Opens a signer with a P-384 private key (PEM, not encrypted) and its certificate (PEM). Throws
 * SignerError. Does not check the certificate's issuer or validity: the hypervisor only measures
 * the certificate (PCR8), and relying parties judge it.
 */
export function openImageSigner(pem: { key: Uint8Array; certificate: Uint8Array }): ImageSigner {
  const key = readKey(pem.key)
  const certificate = readCertificate(pem.certificate)
  if (!certificate.checkPrivateKey(key))
    throw new SignerError('expected a certificate of the signing key, got one of another key')
  return { certificate: pem.certificate, key }
}

/**
 * Returns the signature section of an image with this PCR0 (48 bytes), in the form of
 * aws-nitro-enclaves-image-format: CBOR `[{signing_certificate, signature}]`, with both values as
 * arrays of integers. The signature is COSE_Sign1 (RFC 9052) with ES384 over `{register_index: 0,
 * register_value}`. It is deterministic (RFC 6979), so the owner of the key can rebuild a signed
 * image.
 */
export function signImage(signer: ImageSigner, pcr0: Uint8Array): Uint8Array {
  const payload = encodeMap([
    [encodeText('register_index'), encodeUnsigned(0)],
    [encodeText('register_value'), encodeIntegers(pcr0)],
  ])
  const toBeSigned = encodeArray([
    encodeText('Signature1'),
    encodeBytes(PROTECTED_HEADER),
    encodeBytes(new Uint8Array()),
    encodeBytes(payload),
  ])
  const signature = p384.sign(toBeSigned, exportSecret(signer.key))
  const cose = encodeArray([
    encodeBytes(PROTECTED_HEADER),
    encodeMap([]),
    encodeBytes(payload),
    encodeBytes(signature),
  ])
  return encodeArray([
    encodeMap([
      [encodeText('signing_certificate'), encodeIntegers(signer.certificate)],
      [encodeText('signature'), encodeIntegers(cose)],
    ]),
  ])
}

/** `{1: -35}`: ES384 (RFC 9053, 2.1). */
const PROTECTED_HEADER = Uint8Array.of(0xa1, 0x01, 0x38, 0x22)

function encodeIntegers(bytes: Uint8Array): Uint8Array {
  return encodeArray([...bytes].map(encodeUnsigned))
}

function readKey(pem: Uint8Array): KeyObject {
  const key = attempt(
    () => createPrivateKey(Buffer.from(pem)),
    'expected a PEM private key, not encrypted',
  )
  if (key.asymmetricKeyDetails?.namedCurve !== 'secp384r1')
    throw new SignerError('expected a signing key on P-384')
  return key
}

function readCertificate(pem: Uint8Array): X509Certificate {
  const { der } = attempt(
    () => parseSigningCertificate(pem),
    'expected a PEM certificate of an EC key',
  )
  return attempt(() => new X509Certificate(der), 'expected an X.509 certificate')
}

/** The platform's errors can contain their input, but our messages must never contain a key. */
function attempt<Value>(read: () => Value, expected: string): Value {
  try {
    return read()
  } catch {
    throw new SignerError(expected)
  }
}

function exportSecret(key: KeyObject): Uint8Array {
  const { d } = key.export({ format: 'jwk' })
  if (d === undefined) throw new SignerError('expected a private key')
  return new Uint8Array(Buffer.from(d, 'base64url'))
}
