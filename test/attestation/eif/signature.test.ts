import { expect, it } from 'vitest'
import { parseImageSignature, verifyImageSignature } from '#attestation/eif/signature.ts'
import {
  encodeArray,
  encodeBytes,
  encodeMap,
  encodeText,
  encodeUnsigned,
} from '#enclave/protocol/cbor.ts'
import { rowsByCode } from '../../support/case-table.ts'
import {
  ascii,
  CURVES,
  encodeAlgorithm,
  encodeIntegers,
  encodePayload,
  encodeSignatureSection,
  makeSigner,
  signRegister,
} from './image-builder.ts'

const PCR0 = new Uint8Array(48).fill(200)
const signer = makeSigner('P-384')
const section = encodeSignatureSection(signer.pem, signRegister(signer, PCR0))
const refusal = (code: string) => expect.objectContaining({ name: 'EifError', code })
const entry = (certificate: Uint8Array, signature: Uint8Array) =>
  encodeArray([
    encodeMap([
      [encodeText('signing_certificate'), certificate],
      [encodeText('signature'), signature],
    ]),
  ])
const withCose = (cose: Uint8Array) => encodeSignatureSection(signer.pem, cose)

it.each(Object.keys(CURVES) as (keyof typeof CURVES)[])(
  'an image signature by a key on %s is read and verified',
  async (curve) => {
    const other = makeSigner(curve)
    const image = parseImageSignature(encodeSignatureSection(other.pem, signRegister(other, PCR0)))
    expect(image.certificate.der).toEqual(new Uint8Array(other.der))
    expect(image.certificate.curve.namedCurve).toBe(curve)
    await expect(verifyImageSignature(image, PCR0)).resolves.toBeUndefined()
  },
)

const spoiled = (spoil: (signature: Uint8Array) => Uint8Array) =>
  signRegister(signer, PCR0, { spoil })
it.each<[string, Uint8Array, Uint8Array, string]>([
  ['over another PCR0', signRegister(signer, PCR0), PCR0.with(47, 201), 'signature_payload'],
  [
    'with a flipped bit',
    spoiled((signature) => signature.with(50, (signature[50] ?? 0) ^ 1)),
    PCR0,
    'signature_invalid',
  ],
  ['of 95 bytes', spoiled((signature) => signature.slice(1)), PCR0, 'signature_invalid'],
  ['of 97 bytes', spoiled((one) => Uint8Array.of(...one, 0)), PCR0, 'signature_invalid'],
  [
    "by another key than the certificate's",
    signRegister(makeSigner('P-384'), PCR0),
    PCR0,
    'signature_invalid',
  ],
])('an image signature %s is refused', async (_, cose, pcr0, code) => {
  const image = parseImageSignature(withCose(cose))
  await expect(verifyImageSignature(image, pcr0)).rejects.toMatchObject({ code })
})

it('the verification of an image does not detect a certificate that has expired or is unknown', async () => {
  // The builder's certificates are self-made and ended in 2027; only PCR8 shows whose they are.
  await expect(verifyImageSignature(parseImageSignature(section), PCR0)).resolves.toBeUndefined()
})

it.each<[string, Uint8Array]>([
  ['no bytes', new Uint8Array()],
  ['a trailing byte', Uint8Array.of(...section, 0)],
  ['no entry', encodeArray([])],
  ['two entries', Uint8Array.of(0x82, ...section.subarray(1), ...section.subarray(1))],
  ['an entry that is no map', encodeArray([encodeUnsigned(1)])],
  [
    'byte strings in the place of integers',
    entry(encodeBytes(signer.pem), encodeBytes(signRegister(signer, PCR0))),
  ],
  ['an integer beyond a byte', entry(encodeArray([encodeUnsigned(256)]), encodeArray([]))],
  ['a negative integer', entry(encodeArray([Uint8Array.of(0x20)]), encodeArray([]))],
  ['one member', encodeArray([encodeMap([[encodeText('signature'), encodeArray([])]])])],
  [
    'a third member',
    encodeArray([
      encodeMap([
        [encodeText('signing_certificate'), encodeIntegers(signer.pem)],
        [encodeText('signature'), encodeIntegers(signRegister(signer, PCR0))],
        [encodeText('more'), encodeUnsigned(1)],
      ]),
    ]),
  ],
  ['an array of indefinite length', Uint8Array.of(0x9f, ...section.subarray(1), 0xff)],
  ['a length beyond the section', Uint8Array.of(0x9b, 0, 0, 0, 1, 0, 0, 0, 0)],
])('parseImageSignature refuses a malformed section: %s', (_, bytes) => {
  expect(() => parseImageSignature(bytes)).toThrow(refusal('signature_malformed'))
})

it.each(
  rowsByCode<Uint8Array>({
    cose_malformed: {
      'no array': encodeUnsigned(1),
      'three items': encodeArray([1, 2, 3].map(encodeUnsigned)),
      'numbers where byte strings belong': encodeArray([1, 2, 3, 4].map(encodeUnsigned)),
      'tag 18, which the signer does not write': Uint8Array.of(0xd2, ...signRegister(signer, PCR0)),
      'an unprotected header': signRegister(signer, PCR0, { unprotected: encodeAlgorithm(-35) }),
      'a protected header that is no map': signRegister(signer, PCR0, {
        protectedHeader: encodeUnsigned(1),
      }),
      'another register': signRegister(signer, PCR0, { payload: encodePayload(1, PCR0) }),
      'a payload that is no map': signRegister(signer, PCR0, { payload: PCR0 }),
      'no payload': signRegister(signer, PCR0, { payload: new Uint8Array() }),
    },
    cose_algorithm: {
      "an algorithm of another curve than the key's": signRegister(signer, PCR0, {
        protectedHeader: encodeAlgorithm(-7),
      }),
      'an empty protected header': signRegister(signer, PCR0, { protectedHeader: encodeMap([]) }),
      'a second protected header': signRegister(signer, PCR0, {
        protectedHeader: Uint8Array.of(0xa2, 0x01, 0x38, 0x22, 0x02, 0x80),
      }),
    },
  }),
)('parseImageSignature refuses a malformed COSE_Sign1: %s', (_, code, cose) => {
  expect(() => parseImageSignature(withCose(cose))).toThrow(refusal(code))
})

it('parseImageSignature refuses bytes that are no certificate', () => {
  const section = encodeSignatureSection(ascii('no PEM'), signRegister(signer, PCR0))
  expect(() => parseImageSignature(section)).toThrow(refusal('certificate_malformed'))
})
