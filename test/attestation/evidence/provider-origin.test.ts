import fc from 'fast-check'
import { expect, it } from 'vitest'
import { FormatError } from '#attestation/errors.ts'
import { parseEvidenceBundle } from '#attestation/evidence/bundle.ts'
import { parseOrigin } from '#enclave/providers/parse-table.ts'
import { succeeds } from '../../support/succeeds.ts'
import { type JsonPath, replaceAt } from '../mutate-json.ts'
import { buildEvidence } from './build-evidence.ts'
import { isValid } from './check-schema.ts'

const { bundle } = buildEvidence()
const ORIGIN_PLACE: JsonPath = ['record', 'receipt', 'provider', 'origin']

const WRONG_ORIGINS = [
  'https://',
  'https://x\n',
  'https://u:p@h',
  'https://h/',
  'https://h/path',
  'https://h?q',
  'https://h#f',
  'https://H',
  'HTTPS://h',
  'https://h:443',
  'https://h:08',
  'https://h:',
  'https://h:99999999',
  'https://a b',
  'https://größe.example',
  'https://%41',
  'https://a\\b',
  'https://[::1',
  'ftp://h',
]
const RIGHT_ORIGINS = [
  'https://api.openai.com',
  'https://h:8443',
  'https://h:80',
  'https://10.0.0.1',
  'https://[2001:db8::1]:8443',
  'http://127.0.0.1:4100',
  'http://[::1]:8080',
  'https://a_b.example',
]
/** Hosts of any printable text; most are not valid. */
const HOST = fc.string({ minLength: 1, maxLength: 6 })

it.each(WRONG_ORIGINS)('the origin %j, which no enclave has, is refused in a bundle', (origin) => {
  const changed = replaceAt(bundle, ORIGIN_PLACE, origin)
  expect(() => parseEvidenceBundle(changed)).toThrow(FormatError)
  expect(isValid(changed)).toBe(false)
  expect(succeeds(() => parseOrigin(origin))).toBe(false)
})

it.each(RIGHT_ORIGINS)(
  'the origin %j, which an enclave can have, is taken in a bundle',
  (origin) => {
    const tls = origin.startsWith('http:') ? null : bundle.record.receipt.provider.tls
    const changed = replaceAt(bundle, ['record', 'receipt', 'provider'], {
      name: 'demo',
      origin,
      tls,
    })
    expect(parseEvidenceBundle(changed)).toEqual(changed)
    expect(isValid(changed)).toBe(true)
    expect(parseOrigin(origin)).toBe(origin)
  },
)

it('a bundle takes every origin that the enclave’s table of providers takes', () => {
  fc.assert(
    fc.property(
      fc.constantFrom('https://', 'http://'),
      fc.webAuthority({ withPort: true }),
      HOST,
      (...parts) => {
        const [scheme, authority, host] = parts
        for (const text of [`${scheme}${authority}`, `${scheme}${host}`]) {
          if (!succeeds(() => parseOrigin(text))) continue
          const tls = scheme === 'http://' ? null : bundle.record.receipt.provider.tls
          const changed = replaceAt(bundle, ['record', 'receipt', 'provider'], {
            name: '',
            origin: text,
            tls,
          })
          expect(parseEvidenceBundle(changed)).toEqual(changed)
        }
      },
    ),
    { numRuns: 500 },
  )
})
