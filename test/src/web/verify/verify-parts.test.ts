import { createHash } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { compareExchange } from '#attestation/compare-exchange.ts'
import { BUNDLE_CHECKS } from '#attestation/evidence/bundle-checks.ts'
import { openOfEnclave } from '#attestation/report/enclave-code.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import { bundlePages } from '#src/web/bundle.ts'
import { pageHeaders, renderVerifier, VERIFY_ALLOWANCES } from '#src/web/page.ts'
import { LINKS, wordsOf } from '#src/web/verify/check-words.ts'
import { type GivenPolicy, NO_POLICY } from '#src/web/verify/job.ts'
import { readFragment, takeLinked, writeFragment } from '#src/web/verify/link.ts'
import { linkStates, missingOfCode } from '#src/web/verify/link-states.ts'

const kept = { request: {}, answer: { kind: 'whole', answer: {} } } as const
/** All but the checks of a provider's evidence, which are in a chain of their own. */
const NAMES: readonly string[] = [
  ...Object.entries(BUNDLE_CHECKS).flatMap(([name, need]) =>
    need === 'with a provider policy' ? [] : [name],
  ),
  ...verifyRecord({}).checks.map(({ name }) => name),
  ...compareExchange({}, kept).map(({ name }) => name),
  'attestation',
]

/** The links of a chain with one check that failed. */
const withFailed = (failed: string) =>
  linkStates(
    NAMES.map((name) => ({ name, outcome: name === failed ? 'failed' : 'passed', detail: '' })),
  )

describe('the chain', () => {
  it('the chain has words and a link for every check there is', () => {
    expect(NAMES.filter((name) => wordsOf(name) === null)).toEqual([])
  })

  it('the chain is broken at the links that need a check that failed, and nowhere else', () => {
    for (const failed of NAMES) {
      const links = withFailed(failed)
      const { link, also = link } = wordsOf(failed) ?? {}
      expect(links.filter(({ state }) => state === 'broken').map(({ name }) => name)).toEqual([
        ...new Set([link, also]),
      ])
    }
  })

  it('a link that rests on a broken one does not hold, and a link beside it does', () => {
    const statesOf = (failed: string) =>
      Object.fromEntries(withFailed(failed).map(({ name, state }) => [name, state]))
    const after = { hash: 'void', signature: 'void', log: 'void', anchor: 'void', block: 'void' }
    const beside = { notary: 'holds', code: 'holds' }
    expect(statesOf('request hash')).toEqual({ request: 'broken', ...after, ...beside })
    expect(statesOf('attestation document')).toMatchObject({
      request: 'holds',
      notary: 'broken',
      code: 'void',
      log: 'holds',
    })
    expect(statesOf('block header')).toMatchObject({ anchor: 'holds', block: 'broken' })
  })

  it('the chain is open where a check was not made, or where there is no check', () => {
    expect(linkStates([]).map(({ state }) => state)).toEqual(LINKS.map(() => 'open'))
    const [log] = linkStates([
      { name: 'receipt in log', outcome: 'passed', detail: '' },
      { name: 'tree head', outcome: 'not checked', detail: '' },
    ]).filter(({ name }) => name === 'log')
    expect(log).toMatchObject({ state: 'open', why: 'tree head' })
  })

  it('the chain calls no enclave of a record genuine whose document was not checked', () => {
    const stateOf = (attestation: 'passed' | 'failed' | 'not checked') =>
      linkStates([
        { name: 'attestation key', outcome: 'passed', detail: '' },
        { name: 'attestation', outcome: attestation, detail: '' },
      ]).find(({ name }) => name === 'notary')?.state
    expect(stateOf('not checked')).toBe('open')
    expect(stateOf('failed')).toBe('broken')
    expect(stateOf('passed')).toBe('holds')
  })

  it('the link of the code does not hold for a record, which has no settings, or if any code was accepted', () => {
    const checks = [{ name: 'attestation', outcome: 'passed' as const, detail: '' }]
    const codeOf = (code: 'expected' | 'any') =>
      linkStates(checks, openOfEnclave({ code })).find(({ name }) => name === 'code')
    expect(codeOf('expected')).toMatchObject({ state: 'open', why: 'boot configuration' })
    expect(codeOf('any')).toMatchObject({ state: 'open', why: 'measurements, boot configuration' })
    expect(wordsOf('attestation')?.shows).not.toContain('code')
  })

  it('the link of the code does not hold if only other registers than PCR0 are as expected', () => {
    const checks = [{ name: 'measurements', outcome: 'passed' as const, detail: '' }]
    const stateOf = (...matchedRegisters: readonly number[]) =>
      linkStates(
        checks,
        missingOfCode({ release: null, matchedRegisters, isDebugMode: false }),
      ).find(({ name }) => name === 'code')?.state
    expect([stateOf(4), stateOf(0, 1, 2)]).toEqual(['open', 'holds'])
  })

  it('the chain overlooks no failure of a check that it does not know', () => {
    const [first] = linkStates([{ name: 'of the future', outcome: 'failed', detail: '' }])
    expect(first).toMatchObject({ state: 'broken', why: 'of the future' })
  })
})

describe('a link with policy', () => {
  const expected: GivenPolicy = {
    ...NO_POLICY,
    measurements: `PCR0=${'ab'.repeat(48)}\nPCR1=${'cd'.repeat(48)}`,
    releaseKeys: 'ef',
  }

  it('a link with policy says the texts that are compared, and says them again when it is read', () => {
    expect(readFragment(writeFragment(expected))).toEqual({
      measurements: expected.measurements,
      releaseKeys: 'ef',
      releaseSigners: '',
      configurations: '',
    })
    expect(readFragment('')).toBeNull()
    expect(writeFragment(NO_POLICY)).toBe('')
  })

  it('a link with policy never widens what is trusted', () => {
    const wide: GivenPolicy = {
      ...expected,
      rootText: 'a root',
      anyMeasurement: true,
      allowDebug: true,
      outcomes: ['upstream_error'],
    }
    expect(writeFragment(wide)).toBe(writeFragment(expected))
    const read = readFragment(
      '#rootText=a&anyMeasurement=true&allowDebug=true&rpc=b&measurements=c',
    )
    expect(Object.keys(read ?? {}).sort()).toEqual([
      'configurations',
      'measurements',
      'releaseKeys',
      'releaseSigners',
    ])
    expect(
      readFragment(`#measurements=${'x'.repeat(1_000_000)}`)?.measurements.length,
    ).toBeLessThan(10_000)
  })
})

describe('a link that is taken', () => {
  const linkOf = (text: string) => readFragment(text) ?? expect.unreachable()
  const own = { ...NO_POLICY, releaseKeys: 'aa,bb,cc', releaseSigners: '3', rootText: 'r' }

  it.each([
    ['3', '1', '3'],
    ['3', '0', '3'],
    ['3', ' 2 ', '3'],
    ['3', '0x9', '3'],
    ['3', 'three', '3'],
    ['3', '', '3'],
    ['3', '4', '4'],
    ['', '2', '2'],
    ['some', '2', '2'],
  ])('a link that is taken makes of %j signers and its own %j: %j', (mine, said, then) => {
    const taken = takeLinked(
      { ...own, releaseSigners: mine },
      linkOf(`#releaseKeys=dd&releaseSigners=${said}`),
    )
    expect(taken).toEqual({ ...own, releaseKeys: 'dd', releaseSigners: then })
  })

  it('a link that is taken leaves what it does not speak of as the reader gave it', () => {
    expect(takeLinked(own, linkOf('#measurements=PCR0'))).toEqual({ ...own, measurements: 'PCR0' })
  })
})

describe('the page as one file', () => {
  let html = ''
  let saved: { readonly script: string; readonly style: string }

  beforeAll(async () => {
    saved = (await bundlePages()).saved
    html = renderVerifier(saved)
  })

  it('the page as one file loads nothing, and names its script and its style by their hashes', () => {
    // The script is that of the page that it writes, too.
    const frame = html.replace(saved.script, () => '')
    expect(frame).not.toMatch(/<(script|link|img|iframe)[^>]*(src|href)="(?!data:)/)
    const hashOf = (text: string) => createHash('sha256').update(text).digest('base64')
    const [, policy = ''] = /content-security-policy" content="([^"]*)"/.exec(html) ?? []
    expect(policy).toContain(`script-src 'sha256-${hashOf(saved.script)}';`)
    expect(policy).toContain(`style-src 'sha256-${hashOf(saved.style)}';`)
    expect(policy).not.toContain('unsafe')
    expect(Buffer.byteLength(html)).toBeLessThan(528_000)
  })

  it('the page as one file is not made of a script or style that would end its element', () => {
    for (const script of ['"</script>"', '"<!--"'])
      expect(() => renderVerifier({ script, style: '' })).toThrow(TypeError)
    expect(() => renderVerifier({ script: '', style: 'a{}</style>' })).toThrow(TypeError)
  })

  it('the page as one file may ask a chain, and no other page may', () => {
    const policyOf = (headers: Readonly<Record<string, string>>) =>
      headers['content-security-policy']
    expect(policyOf(pageHeaders(VERIFY_ALLOWANCES))).toContain(
      "connect-src 'self' https: http://127.0.0.1:*",
    )
    expect(policyOf(pageHeaders())).toContain("connect-src 'self';")
  })
})
