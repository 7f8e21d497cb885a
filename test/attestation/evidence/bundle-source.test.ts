import { expect, it, vi } from 'vitest'
import { FormatError } from '#attestation/errors.ts'
import { createBundle, parseEvidenceBundle } from '#attestation/evidence/bundle.ts'
import { isOperatorName } from '#attestation/evidence/bundle-source.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { judgeBundle } from '#attestation/report/judge-bundle.ts'
import { adviseOnSource, saySource } from '#attestation/report/say-source.ts'
import { buildEvidence } from './build-evidence.ts'
import { isValid } from './check-schema.ts'

const { bundle, policy, chain } = buildEvidence()
const plain: JsonObject = JSON.parse(JSON.stringify(bundle))
const SOURCE = {
  gateway: 'https://gateway.example',
  operator: 'Example Ltd',
  releases: 'https://example.com/releases.json?of=all#newest',
}
const withSource = (source: Json): JsonObject => ({ ...plain, source })

const VALID: readonly JsonObject[] = [
  SOURCE,
  { gateway: 'http://127.0.0.1:3000/base/' },
  { gateway: `https://h/${'x'.repeat(290)}` },
  { operator: '名'.repeat(200) },
  { operator: '𝒜'.repeat(200) },
  { releases: 'http://[::1]:8080/list' },
]

const REFUSED: readonly (readonly [string, Json])[] = [
  ['null', null],
  ['a text', 'https://gateway.example'],
  ['a list', [SOURCE]],
  ['no member', {}],
  ['one more member', { ...SOURCE, key: 'ab' }],
  ['another member alone', { url: 'https://gateway.example' }],
  ['a gateway of null', { gateway: null }],
  ['an empty gateway', { gateway: '' }],
  ['a script', { gateway: 'javascript:alert(1)' }],
  ['a data URL', { releases: 'data:text/html,x' }],
  ['a file', { releases: 'file:///etc/passwd' }],
  ['a scheme in upper case', { gateway: 'HTTPS://gateway.example' }],
  ['no host', { gateway: 'https:///path' }],
  ['a user before the host', { gateway: 'https://api.example@other.example' }],
  ['a blank', { gateway: 'https://gateway.example/ VERIFIED' }],
  ['a terminal escape', { gateway: 'https://gateway.example/\u001b[2J' }],
  ['a line end', { gateway: 'https://gateway.example\n' }],
  ['letters beyond ASCII', { gateway: 'https://gatew\u0430y.example' }],
  ['a URL that is too long', { releases: `https://h/${'x'.repeat(291)}` }],
  ['an empty operator', { operator: '' }],
  ['an operator of a number', { operator: 7 }],
  ['an operator that is too long', { operator: 'x'.repeat(201) }],
]

/** The schema does not see them. */
const CONTROLS: readonly (readonly [string, string])[] = [
  ['a terminal escape', 'Example\u001b[2J'],
  ['a line end', 'Example\nVERIFIED'],
  ['a turn of direction', 'Example\u202eLtd'],
  ['half a character', 'Example\ud800'],
  ['a soft hyphen', 'Ex\u00adample'],
  ['a joiner', '👨\u200d👩'],
  ['a line separator', 'Example\u2028Ltd'],
  ['a paragraph separator', 'Example\u2029Ltd'],
  ['a blank at its beginning', ' Example'],
  ['a no-break blank at its end', 'Example\u00a0'],
  ['two blanks together', 'Example  Ltd'],
  ['an invisible letter', '\u3164'],
  ['a variation selector', '\u2600\ufe0f Sun'],
]

it.each(VALID)('the parser and the schema take the source %j', (source) => {
  expect(parseEvidenceBundle(withSource(source))).toEqual(withSource(source))
  expect(isValid(withSource(source))).toBe(true)
})

it.each(REFUSED)('the parser and the schema refuse a wrong source: %s', (_, source) => {
  expect(() => parseEvidenceBundle(withSource(source))).toThrow(FormatError)
  expect(() => parseEvidenceBundle(withSource(source))).toThrow(/expected source/)
  expect(isValid(withSource(source))).toBe(false)
})

it.each(CONTROLS)('the parser refuses the name of an operator with %s', (_, operator) => {
  expect(() => parseEvidenceBundle(withSource({ operator }))).toThrow(/source\.operator/)
})

it('createBundle states the source', () => {
  const make = ({ record, boot_configuration, transaction, block }: JsonObject) =>
    createBundle({
      record: record as JsonObject,
      bootConfiguration: boot_configuration as JsonObject,
      transaction: String(transaction),
      block: block as never,
      source: SOURCE,
    })
  expect(make(plain)).toEqual(withSource(SOURCE))
})

it('a source changes no verdict and no check, whatever it says, and is only reported', async () => {
  for (const demanded of [policy, { roots: policy.roots ?? [] }]) {
    const without = await verifyBundle(plain, demanded, { chain })
    expect(without.source).toBeNull()
    const sources: readonly JsonObject[] = [
      SOURCE,
      { operator: 'AWS' },
      { releases: 'https://a.example' },
    ]
    for (const source of sources)
      expect(await verifyBundle(withSource(source), demanded, { chain })).toEqual({
        ...without,
        source,
      })
  }
})

it('judging a bundle calls no address of its source, and the source adds no expectation', async () => {
  const asked = vi.spyOn(globalThis, 'fetch')
  const judge = (given: JsonObject) =>
    judgeBundle(given, {
      policy: { roots: policy.roots ?? [] },
      verifier: createAttestationVerifier(),
      kept: {},
      askChain: null,
    })
  const { report, ...judged } = await judge(withSource(SOURCE))
  const { report: other, ...same } = await judge(plain)
  expect(judged).toEqual(same)
  expect(report).toEqual({ ...other, source: SOURCE })
  expect(judged.verdict).toBe('incomplete')
  expect(report.open).toEqual(['measurements', 'expected configuration'])
  expect(asked).not.toHaveBeenCalled()
  asked.mockRestore()
})

const judgedWith = async (source: JsonObject, demanded = { roots: policy.roots ?? [] }) =>
  judgeBundle(withSource(source), {
    policy: demanded,
    verifier: createAttestationVerifier(),
    kept: {},
    askChain: null,
  })

it.each([
  [
    SOURCE,
    'https://gateway.example (“Example Ltd”; releases at https://example.com/releases.json?of=all#newest)',
  ],
  [{ gateway: 'https://g.example' }, 'https://g.example'],
  [{ operator: 'Example Ltd' }, '“Example Ltd”'],
  [{ releases: 'https://e.example/l' }, 'releases at https://e.example/l'],
  [
    { operator: 'Example Ltd', releases: 'https://e.example/l' },
    '“Example Ltd” (releases at https://e.example/l)',
  ],
])('the source %j is said in one line', (source, said) => {
  expect(saySource(source)).toBe(said)
})

it('what controls a terminal is escaped, even in a source that no parser gave', () => {
  const said = saySource({ gateway: 'https://g.example/\u001b[2J', operator: 'x\u202e\n' })
  expect(said).toBe('https://g.example/\\u{1b}[2J (“x\\u{202e}\\u{a}”)')
})

it.each([
  [
    SOURCE,
    'The evidence names https://gateway.example (“Example Ltd”) as its source, and anyone can write',
  ],
  [{ operator: 'Example Ltd' }, 'The evidence names “Example Ltd” as its source'],
  [
    { releases: 'https://e.example/l' },
    'The evidence names the publisher of the releases at https://e.example/l',
  ],
])('a reader without expectations is told whom to ask by the source %j', async (source, said) => {
  expect(adviseOnSource(await judgedWith(source))).toContain(said)
})

it('the name of an operator cannot end its quotation, and lays out no line', () => {
  expect(saySource({ operator: 'A”; checked (“B"' })).toBe(
    '“A\\u{201d}; checked (\\u{201c}B\\u{22}”',
  )
  for (const name of [' ', 'A  B', ' A', 'A\u00a0', 'A\u3164', '\u115fA'])
    expect([name, isOperatorName(name)]).toEqual([name, false])
  expect(isOperatorName('Größe & Söhne GmbH')).toBe(true)
})

it('the reader is told to ask no one where no expectation is missing, or the bundle has no source', async () => {
  expect(adviseOnSource(await judgedWith(SOURCE, policy as never))).toBeNull()
  const judged = await judgedWith(SOURCE)
  expect(adviseOnSource({ ...judged, report: { ...judged.report, source: null } })).toBeNull()
  expect(adviseOnSource({ ...judged, verdict: 'invalid' })).toBeNull()
})
