import { createDecipheriv, randomBytes } from 'node:crypto'
import * as HPKE from 'hpke'
import { describe, expect, it } from 'vitest'
import { createFrameReader, nonceAt } from '#attestation/ehbp.ts'
import { FormatError } from '#attestation/errors.ts'
import { CallFault } from '#enclave/call-fault.ts'
import { createFrameSealer } from '#enclave/encryption/frames.ts'
import { hkdfExpand, hkdfExtract, publicKeyOf, setUpRecipient } from '#enclave/encryption/hpke.ts'
import vector from '../../vectors/hpke/base-x25519-sha256-aes256gcm.json' with { type: 'json' }

const suite = new HPKE.CipherSuite(
  HPKE.KEM_DHKEM_X25519_HKDF_SHA256,
  HPKE.KDF_HKDF_SHA256,
  HPKE.AEAD_AES_256_GCM,
)
const INFO = 'ehbp request'

function makeKeys() {
  const secretKey = randomBytes(32)
  return { secretKey, publicKey: publicKeyOf(secretKey) }
}

/** A sender by the package, for these keys. */
async function setUpSender(publicKey: Uint8Array, info = INFO) {
  const key = await suite.DeserializePublicKey(new Uint8Array(publicKey))
  const { encapsulatedSecret: enc, ctx } = await suite.SetupSender(key, {
    info: new TextEncoder().encode(info),
  })
  return { enc: Buffer.from(enc), ctx }
}
const codeOf = (run: () => unknown) => {
  try {
    run()
    return 'opened'
  } catch (fault) {
    return fault instanceof CallFault ? fault.fault.code : String(fault)
  }
}

describe('the recipient on node:crypto', () => {
  it('the HPKE recipient opens what the package hpke seals, in order, with and without AAD', async () => {
    for (let round = 0; round < 2; round += 1) {
      const keys = makeKeys()
      const { enc, ctx } = await setUpSender(keys.publicKey)
      const recipient = setUpRecipient(keys, { enc, info: INFO })
      for (const text of ['', 'first', 'grüß 🐈', 'x'.repeat(100_000)]) {
        const aad = Buffer.from(text.slice(0, 3))
        const sealed = await ctx.Seal(Buffer.from(text), aad)
        expect(recipient.open(Buffer.from(sealed), aad).toString()).toBe(text)
      }
      const exported = await ctx.Export(new TextEncoder().encode('ehbp response'), 32)
      expect(recipient.export('ehbp response', 32)).toEqual(Buffer.from(exported))
    }
  })

  it('the HPKE recipient refuses a flipped bit, another order, key, info or AAD, and what is too short', async () => {
    const keys = makeKeys()
    const { enc, ctx } = await setUpSender(keys.publicKey)
    const first = Buffer.from(await ctx.Seal(Buffer.from('first')))
    const second = Buffer.from(await ctx.Seal(Buffer.from('second')))
    const open = (ciphertext: Uint8Array, more: object = {}, aad?: Uint8Array) =>
      codeOf(() =>
        setUpRecipient({ ...keys, ...more }, { enc, info: INFO, ...more }).open(ciphertext, aad),
      )
    expect(open(first)).toBe('opened')
    for (let bit = 0; bit < first.length * 8; bit += 7) {
      const flipped = Buffer.from(first)
      flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7))
      expect(open(flipped)).toBe('bad_ciphertext')
    }
    expect(open(second)).toBe('bad_ciphertext')
    expect(open(first, makeKeys())).toBe('bad_ciphertext')
    expect(open(first, { info: 'affidavit credential' })).toBe('bad_ciphertext')
    expect(open(first, {}, Buffer.from('aad'))).toBe('bad_ciphertext')
    for (let length = 0; length < 16; length += 1)
      expect(open(first.subarray(0, length))).toBe('bad_ciphertext')
  })

  it('the HPKE recipient refuses encapsulated keys of small order (RFC 7748 section 6.1)', () => {
    const keys = makeKeys()
    for (const enc of [
      '00'.repeat(32),
      `01${'00'.repeat(31)}`,
      'e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800',
      '5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157',
      'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
    ])
      expect(codeOf(() => setUpRecipient(keys, { enc: Buffer.from(enc, 'hex'), info: INFO }))).toBe(
        'bad_ciphertext',
      )
  })
})

describe('the test vector of RFC 9180 for this suite', () => {
  const hex = (text: string) => Buffer.from(text, 'hex')
  const keys = { secretKey: hex(vector.skRm), publicKey: hex(vector.pkRm) }

  it('the RFC 9180 test vector is opened, in order, and exports the same', () => {
    const info = hex(vector.info).toString()
    const recipient = setUpRecipient(keys, { enc: hex(vector.enc), info })
    for (const { aad, pt, ct } of vector.encryptions)
      expect(recipient.open(hex(ct), hex(aad)).toString('hex')).toBe(pt)
    for (const { exporter_context: context, L, exported_value: value } of vector.exports)
      expect(recipient.export(hex(context).toString(), L).toString('hex')).toBe(value)
  })
})

describe('frames', () => {
  const body = (...frames: readonly string[]) =>
    Buffer.concat(
      frames.map((frame) => {
        const head = Buffer.alloc(4)
        head.writeUInt32BE(Buffer.byteLength(frame))
        return Buffer.concat([head, Buffer.from(frame)])
      }),
    )

  it('frames take memory for bytes that came, not for claimed lengths, and none for each part', () => {
    const before = process.memoryUsage()
    const readers = Array.from({ length: 200 }, () => createFrameReader(2 ** 26))
    for (const reader of readers)
      expect([...reader.push(Buffer.from('03ffffff00', 'hex'))]).toEqual([])
    const one = createFrameReader(2 ** 22)
    expect([...one.push(Buffer.from('003fffff', 'hex'))]).toEqual([])
    const part = Buffer.from([7])
    for (let count = 0; count < 2 ** 20; count += 1)
      for (const _ of one.push(part)) throw new Error()
    const after = process.memoryUsage()
    expect(
      after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers,
    ).toBeLessThan(64 * 2 ** 20)
  })

  it('frames that are too long, or cut, are refused', () => {
    expect(() => [...createFrameReader(5).push(body('sixsix'))]).toThrow(FormatError)
    expect([...createFrameReader(6).push(body('sixsix'))]).toHaveLength(1)
    for (let length = 1; length < 10; length += 1) {
      const reader = createFrameReader(100)
      for (const _ of reader.push(body('sixsix').subarray(0, length))) throw new Error('no frame')
      if (length < 10) expect(() => reader.end()).toThrow(FormatError)
    }
  })

  it('frames of an answer are sealed in order, under nonces of their own', () => {
    const options = {
      secret: randomBytes(32),
      enc: randomBytes(32),
      responseNonce: randomBytes(32),
    }
    const sealer = createFrameSealer(options)
    const prk = hkdfExtract(Buffer.concat([options.enc, options.responseNonce]), options.secret)
    const key = hkdfExpand(prk, Buffer.from('key'), 32)
    const nonce = hkdfExpand(prk, Buffer.from('nonce'), 12)
    const reader = createFrameReader(1000)
    const sealed = ['one', '', 'three'].map((text) => sealer.seal(Buffer.from(text)))
    const opened = [...reader.push(Buffer.concat(sealed))].map((frame, index) => {
      const decipher = createDecipheriv('aes-256-gcm', key, nonceAt(nonce, index))
      decipher.setAuthTag(frame.subarray(-16))
      return Buffer.concat([decipher.update(frame.subarray(0, -16)), decipher.final()]).toString()
    })
    expect(opened).toEqual(['one', '', 'three'])
  })
})
