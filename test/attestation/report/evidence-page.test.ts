import fc from 'fast-check'
import { expect, it } from 'vitest'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { Json } from '#attestation/json/value.ts'
import {
  digestVerifier,
  isHtml,
  makePage,
  putEvidence,
  readEvidencePage,
  writeMadeBy,
} from '#attestation/report/evidence-page.ts'
import { EvidenceError, readEvidence } from '#attestation/report/read-evidence.ts'
import { isVerifier, writeVerifier } from '#attestation/report/verifier-page.ts'

const PARTS = {
  policy: "script-src 'sha256-AA=='",
  icon: 'data:,',
  style: 'p{}',
  script: `const line = '<script type="application/json" id="evidence">'`,
}
const VERIFIER = writeVerifier(PARTS)
const MAKER = { version: '0.1.0', commit: 'ab'.repeat(20) }
const EMPTY = makePage(VERIFIER, writeMadeBy(VERIFIER, MAKER))
const record = { request: {}, response: {}, hash: 'aa' }
const PAGE = putEvidence(EMPTY, record)
const [LINE = ''] = /^<script type="application\/json" id="evidence">.*\n/m.exec(PAGE) ?? []

const bytes = (text: string) => Buffer.from(text)
const read = (page: string) => readEvidencePage(bytes(page))
const evidenceOf = (page: string) => {
  const { evidence } = read(page)
  return evidence === null ? null : parseExactJson(evidence)
}

it('a page gives its evidence back, and names version, commit and digest of its verifier', () => {
  expect(evidenceOf(PAGE)).toEqual(record)
  expect(read(PAGE)).toMatchObject({
    madeBy: { ...MAKER, verifierSha256: digestVerifier(VERIFIER) },
    verifierSha256: digestVerifier(VERIFIER),
  })
  expect(readEvidence(bytes(PAGE), null)).toEqual(readEvidence(bytes(JSON.stringify(record)), null))
})

it('a page without its lines of data is the verifier, byte for byte', () => {
  const isData = (line: string) =>
    /^<script type="application\/json" id="(made-by|evidence)">[^<]*<\/script>$/.test(line)
  for (const page of [PAGE, EMPTY])
    expect(
      page
        .split('\n')
        .filter((line) => !isData(line))
        .join('\n'),
    ).toBe(VERIFIER)
})

it('evidence takes the place of other evidence, and nothing of that is left', () => {
  expect(putEvidence(putEvidence(EMPTY, { secret: 'before' }), record)).toBe(PAGE)
})

it.each([
  ['the end of its element', '</script><script>alert(1)</script>'],
  ['the end of its element in capitals', '</SCRIPT >'],
  ['a comment', '<!-- <script> --> ]]>'],
  ['line separators', 'a\u2028b\u2029c\r\nd\u0000e\u0085f'],
  ['another block', 'x\n<script type="application/json" id="evidence">{}</script>\n'],
  ['what looks like an element for data', ' id="evidence" id=made-by '],
  ['patterns of a replacement', "$& $1 $` $' $$"],
  ['a byte order mark and other planes', '\ufeff\u{1f600}\u{10ffff}'],
])('evidence that holds %s is text and comes back as it was', (_, text) => {
  const page = putEvidence(EMPTY, { [text]: [text] })
  expect(evidenceOf(page)).toEqual({ [text]: [text] })
  expect(page.split('\n').length).toBe(PAGE.split('\n').length)
  expect(page.match(/<\/script>/gi)?.length).toBe(PAGE.match(/<\/script>/gi)?.length)
})

it('the array of a page has evidence alone, of as many calls as a file has lines', () => {
  const call = { format: 'affidavit-evidence', version: 1 }
  const readArray = (value: readonly Json[]) => readEvidence(bytes(putEvidence(EMPTY, value)), null)
  expect(readArray([call])).toEqual({ kind: 'bundle', bundle: call })
  expect(readArray([call, call])).toEqual({ kind: 'session', calls: [call, call] })
  expect(() => readArray([])).toThrow(EvidenceError)
  expect(() => readArray([call, record])).toThrow('expected line 2 to be affidavit-evidence')
  expect(() => readArray(Array(10_001).fill(call))).toThrow('at most 10000 lines')
})

it('any evidence comes back as it was, in one line without a tag', () => {
  const texts = fc.oneof(
    fc.string({ unit: 'grapheme' }),
    fc.stringMatching(/^(<\/script>|<!--|<|id="evidence"|\\u003c|\u2028|"|\\)*$/),
  )
  const values = fc.dictionary(
    texts.filter((name) => name !== '__proto__'),
    fc.oneof(texts, fc.integer(), fc.constant(null), fc.array(texts)),
    { noNullPrototype: true },
  )
  fc.assert(
    fc.property(values, (value) => {
      const page = putEvidence(EMPTY, value)
      expect(canonicalizeJson(evidenceOf(page))).toBe(canonicalizeJson(value))
      expect(read(page).verifierSha256).toBe(digestVerifier(VERIFIER))
      expect(page.split('\n').length).toBe(PAGE.split('\n').length)
    }),
  )
})

/** A browser takes the first two for the evidence, and follows the third to another page. */
const OTHER_ELEMENTS = [
  '<meta name="x" id="evidenc&#101;">',
  '<meta id=&#x65;vidence>',
  '<meta http-equiv="refresh" content="0;url=https://example.com">',
]

it.each([
  ['other HTML', '<!doctype html><title>x</title>\n<p>404</p>', 'not_a_page'],
  ['a page that does not name its maker', VERIFIER, 'not_a_page'],
  ['two blocks of evidence', PAGE.replace(LINE, LINE + LINE), 'data_twice'],
  ['a second block further down', PAGE.replace('</body>', `${LINE}</body>`), 'not_a_page'],
  [
    'a second block in another form',
    PAGE.replace('</body>', "<script ID = 'evidence'>"),
    'not_a_page',
  ],
  ['a second block before the first', PAGE.replace('<head>', `<head>\n${LINE}`), 'not_a_page'],
  ...OTHER_ELEMENTS.flatMap((element) =>
    ['<title>', '<link', '</head>', '</body>'].map((before) => [
      `${element} before ${before}`,
      PAGE.replace(before, `${element}\n${before}`),
      'not_a_page',
    ]),
  ),
  ['an attribute more', PAGE.replace('<body>', '<body id="evidence">'), 'not_a_page'],
  ['a policy with an entity', PAGE.replace("-src '", "-src &quot; id=&quot;'"), 'not_a_page'],
  ['a byte order mark', `\ufeff${PAGE}`, 'not_a_page'],
  ['text after its end', `${PAGE}<p>`, 'not_a_page'],
  ['a style that ends early', PAGE.replace('p{}', 'p{}</STYLE><p>'), 'not_a_page'],
  ['a script in a comment', PAGE.replace('const', '<!--<script>'), 'not_a_page'],
  [
    'data in a comment, where no browser sees it',
    PAGE.replace('<title>', '<!--\n<title>').replace(LINE, `${LINE}-->\n`),
    'not_a_page',
  ],
  [
    'data in an attribute, where no browser sees it',
    PAGE.replace('<title>', '<meta name="x>\n<title>'),
    'not_a_page',
  ],
  ['data in the text of a style', PAGE.replace('<title>', '<style>\n<title>'), 'not_a_page'],
  [
    'data that browsers would decode otherwise',
    PAGE.replace('charset="utf-8"', 'charset="gbk"'),
    'not_a_page',
  ],
  ['two makers', EMPTY.replace(/^(<script.*"made-by".*\n)/m, '$1$1'), 'data_twice'],
  ['a tag in the block', PAGE.replace('"hash"', '"<b>"'), 'evidence_unfit'],
  ['a block over two lines', PAGE.replace(',"request"', ',\n"request"'), 'evidence_unfit'],
  [
    'a block of another type',
    PAGE.replace('json" id="evidence"', 'ld+json" id="evidence"'),
    'evidence_unfit',
  ],
  [
    'a block with an attribute more',
    PAGE.replace('id="evidence">', 'id="evidence" x>'),
    'evidence_unfit',
  ],
  ['a block that does not end', PAGE.slice(0, PAGE.indexOf(LINE) + 60), 'evidence_unfit'],
  ['a version with markup', EMPTY.replace('"0.1.0"', '"\\u003cb>"'), 'made_by_unfit'],
  ['a malformed commit', EMPTY.replace('"ab', '"zz'), 'made_by_unfit'],
  ['one member twice', EMPTY.replace('{"commit"', '{"version":"1","commit"'), 'duplicate_key'],
])('the page is refused: %s', (_, page, code) => {
  expect(() => read(page)).toThrow(expect.objectContaining({ code }))
  expect(() => readEvidence(bytes(page), null)).toThrow(EvidenceError)
})

it('a page that is not UTF-8 is refused', () => {
  const page = Buffer.concat([bytes(PAGE), Buffer.from([0xff])])
  expect(() => readEvidencePage(page)).toThrow(expect.objectContaining({ code: 'invalid_utf8' }))
})

it('a page without evidence is refused as evidence, and so is evidence that is not JSON', () => {
  const codeOf = (page: string) => {
    try {
      return readEvidence(bytes(page), null)
    } catch (fault) {
      return fault instanceof EvidenceError ? [fault.code, fault.message] : fault
    }
  }
  expect(codeOf(EMPTY)).toEqual(['not_evidence', expect.stringContaining('no evidence is in it')])
  expect(codeOf(PAGE.replace('{"hash"', '{hash'))).toEqual(['not_json', expect.any(String)])
  expect(codeOf(PAGE.replace('{"hash":"aa"', '{"hash":"aa","hash":"bb"'))).toEqual([
    'not_evidence',
    expect.any(String),
  ])
})

it('a changed verifier has another digest than the page names', () => {
  const changed = read(PAGE.replace('p{}', 'p{color:red}'))
  expect(changed.verifierSha256).not.toBe(changed.madeBy.verifierSha256)
})

it('a page whose maker names the digest of a changed verifier is not detected', () => {
  const forged = writeVerifier({ ...PARTS, script: 'say("VERIFIED")' })
  const page = read(putEvidence(makePage(forged, writeMadeBy(forged, MAKER)), record))
  expect(page.verifierSha256).toBe(page.madeBy.verifierSha256)
  expect(page.verifierSha256).not.toBe(digestVerifier(VERIFIER))
})

it('any damage to a page gives a FormatError or a page, and never takes long', () => {
  fc.assert(
    fc.property(fc.nat(PAGE.length), fc.nat(60), fc.string(), (at, length, text) => {
      const page = PAGE.slice(0, at) + text + PAGE.slice(at + length)
      try {
        const { evidence } = read(page)
        if (evidence !== null) expect(Buffer.from(evidence).includes(0x3c)).toBe(false)
      } catch (fault) {
        expect(fault).toMatchObject({ code: expect.any(String) })
      }
    }),
  )
  const script = `${'</scrip '.repeat(400_000)}${'<!-'.repeat(400_000)}`
  const hostile = makePage(writeVerifier({ ...PARTS, script }), writeMadeBy(VERIFIER, MAKER))
  const before = process.cpuUsage()
  expect(read(hostile).evidence).toBeNull()
  expect(process.cpuUsage(before).user).toBeLessThan(1_500_000)
})

it.each([
  ['<!doctype html>', true],
  ['\ufeff\n <!DOCTYPE HTML>', true],
  ['{"a":"<!doctype html>"}', false],
  ['data: <!doctype html>', false],
  ['', false],
])('isHtml of %j is %j', (text, expected) => {
  expect(isHtml(bytes(text))).toBe(expected)
})

it('a page is made of a verifier alone', () => {
  for (const other of ['', '<p>', EMPTY, `${VERIFIER}\n`, VERIFIER.slice(0, -1)])
    expect(() => makePage(other, {})).toThrow(TypeError)
})

it.each([
  ['policy', '" id="evidence'],
  ['policy', '&#34;'],
  ['icon', '"><p'],
  ['style', '</style '],
  ['style', 'a\r\n'],
  ['script', '</script\n'],
  ['script', '<!--'],
  ['script', '\0'],
])('the part %s of a verifier is not %j', (name, text) => {
  expect(() => writeVerifier({ ...PARTS, [name]: text })).toThrow(TypeError)
  expect(isVerifier(VERIFIER.replace(PARTS[name as 'icon'], () => text))).toBe(false)
})
