import { expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { AWS_ROOT_SHA256, parseRoots } from '#attestation/nitro/policy.ts'
import { standardChain } from '../../support/nitro-builder/document-builder.ts'
import { NITRO_FIXTURES, nitroFixtures, readFixture } from '../../support/nitro-fixtures.ts'

const [root = new Uint8Array()] = standardChain.cabundle
const pemOf = (der: Uint8Array) => {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? []
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n')
}
const bytesOf = (text: string) => new Uint8Array(Buffer.from(text))
const rootSha256 = encodeHex(standardChain.rootSha256)

it.each([
  ['DER', root],
  ['PEM', bytesOf(pemOf(root))],
  ['PEM with carriage returns', bytesOf(pemOf(root).replaceAll('\n', '\r\n'))],
  ['PEM after other text', bytesOf(`subject=CN=root\n${pemOf(root)}`)],
])('a file of roots in %s gives the fingerprint', (_, file) => {
  expect(parseRoots(file).map(encodeHex)).toEqual([rootSha256])
})

it('a file of several PEM blocks gives each fingerprint', () => {
  expect(parseRoots(bytesOf(pemOf(root) + pemOf(standardChain.certificate)))).toHaveLength(2)
})

it.each([
  ['nothing', ''],
  ['text', 'trust me'],
  ['a private key', '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----'],
  ['a block that is no base64', '-----BEGIN CERTIFICATE-----\n****\n-----END CERTIFICATE-----'],
])('a file of roots that holds %s is refused', (_, text) => {
  expect(() => parseRoots(bytesOf(text))).toThrow(FormatError)
})

it.runIf(NITRO_FIXTURES.isMet)(
  NITRO_FIXTURES.title('the pinned root is found in what AWS signed'),
  () => {
    for (const fixture of nitroFixtures.filter(({ kind }) => kind === 'aws')) {
      const [first = new Uint8Array()] = decodeAttestationPayload(readFixture(fixture)).cabundle
      expect(parseRoots(first)).toEqual([AWS_ROOT_SHA256])
    }
  },
)
