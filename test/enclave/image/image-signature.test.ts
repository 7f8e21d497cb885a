import { createHash, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { measureEif } from '#attestation/eif/measure-eif.ts'
import { encodeEif, measureParts } from '#enclave/image/eif.ts'
import { openImageSigner, SignerError, signImage } from '#enclave/image/image-signature.ts'
import { ascii, makeSigner } from '../../attestation/eif/image-builder.ts'

const PARTS = {
  kernel: ascii('kernel'),
  cmdline: 'console',
  metadata: '{}',
  ramdisks: [ascii('boot'), ascii('app')],
}
const made = makeSigner('P-384')
const exportKey = (key: KeyObject) => ascii(String(key.export({ type: 'pkcs8', format: 'pem' })))
const pem = { key: exportKey(made.privateKey), certificate: made.pem }

async function measure(image: Uint8Array) {
  const chunks = (async function* () {
    yield image
  })()
  return measureEif({ sizeBytes: image.length, chunks })
}

describe('signImage', () => {
  const signature = signImage(openImageSigner(pem), measureParts(PARTS).pcr0)

  it('signImage makes an image that the reader verifies, with PCR8 over the certificate', async () => {
    expect(signImage(openImageSigner(pem), measureParts(PARTS).pcr0)).toEqual(signature)
    const report = await measure(encodeEif({ ...PARTS, signature }))
    const digest = createHash('sha384').update(made.der).digest()
    const pcr8 = createHash('sha384').update(new Uint8Array(48)).update(digest).digest()
    expect(report.signature?.algorithm).toBe('ES384')
    expect(report.measurements.pcr8).toEqual(new Uint8Array(pcr8))
    expect(report.measurements.pcr0).toEqual(measureParts(PARTS).pcr0)
  })
})

describe('openImageSigner', () => {
  it('openImageSigner refuses a key on another curve, no key, no certificate, or one of another key', () => {
    const p256 = makeSigner('P-256')
    const open = (given: Partial<typeof pem>) => () => openImageSigner({ ...pem, ...given })
    expect(open({ key: exportKey(p256.privateKey), certificate: p256.pem })).toThrow(SignerError)
    expect(open({ key: ascii('nothing') })).toThrow('expected a PEM private key')
    expect(open({ certificate: ascii('nothing') })).toThrow('expected a PEM certificate')
    expect(open({ certificate: makeSigner('P-384').pem })).toThrow('one of another key')
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
    expect(open({ key: exportKey(privateKey) })).toThrow('P-384')
  })

  it('openImageSigner quotes nothing of a key that it cannot read', () => {
    const key = ascii(new TextDecoder().decode(pem.key).replace(/[A-Z]/, '!'))
    expect(() => openImageSigner({ ...pem, key })).toThrow(
      /^expected a PEM private key, not encrypted$/,
    )
  })
})
