import { writeFile } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { entryOf } from '#attestation/release/release-list.ts'
import { formatTime } from '#attestation/release/release-signatures.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
} from '../../../attestation/evidence/build-evidence.ts'
import { buildEntry, buildOtherRelease, buildRelease } from '../../../support/build-release.ts'
import { MADE_AT } from '../../../support/nitro-builder/development-pki.ts'
import {
  buildDocument,
  PCR_VALUES,
  standardChain,
} from '../../../support/nitro-builder/document-builder.ts'
import {
  OPERATOR_KEY,
  openReleaseStage,
  type ReleaseStage,
  STRANGER_SECRET,
} from '../../../support/release-stage.ts'
import { runCommand } from '../../../support/run-command.ts'

const { bundle } = buildEvidence()
const release = buildRelease()
const configuration = ['--configuration', encodeHex(digestOf(BOOT_CONFIGURATION))]
const trusted = ['--release-key', OPERATOR_KEY]
const REVOKED = { at: '2026-06-01T00:00:00Z', reason: 'it signs anything' }

let stage: ReleaseStage
let root: readonly string[]
let bundleFile: string
let recordFile: string
let manifest: string

beforeAll(async () => {
  stage = await openReleaseStage()
  await writeFile(stage.path('root.der'), standardChain.cabundle[0] ?? new Uint8Array())
  root = ['--root', stage.path('root.der')]
  bundleFile = await stage.save('bundle.json', bundle)
  recordFile = await stage.save('record.json', bundle.record)
  manifest = await stage.saveRelease('measurements.json', release)
})
afterAll(() => stage.close())

async function verify(...words: readonly string[]) {
  const { code, stdout, stderr } = await runCommand('verify', ...words, ...root, '--json')
  const report = stdout === '' ? null : JSON.parse(stdout)
  return {
    code,
    stderr,
    report,
    checks: report?.bundle?.checks ?? report?.records?.[0]?.checks ?? [],
  }
}

const failedOf = (checks: readonly { name: string; outcome: string }[]) =>
  checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name)

describe('affidavit verify --release', () => {
  it('verify takes a bundle by a signed release, and names the release', async () => {
    const words = ['--release', manifest, ...trusted, ...configuration]
    const { code, report, stderr } = await verify(bundleFile, ...words)
    expect(code).toBe(0)
    const name = { version: release.version, git_commit: release.git_commit }
    expect(report.bundle).toMatchObject({ verdict: 'verified', facts: { release: name } })
    expect(stderr).toMatch(
      /release 1\.4\.0 .*signed by [0-9a-f]{64}; whether it was revoked is not known/,
    )
    const { stdout } = await runCommand('verify', bundleFile, ...root, ...words)
    expect(stdout).toContain(`code           release 1.4.0 (commit ${release.git_commit})`)
  })

  it('policy makes one file of signed releases, by which a bundle is verified', async () => {
    const made = stage.path('policy.json')
    const words = ['--release', manifest, ...trusted, ...configuration, ...root]
    const { code, stderr } = await runCommand('policy', ...words, '--output', made)
    expect([code, stderr]).toEqual([0, expect.stringContaining('release 1.4.0')])
    expect(stderr).toContain('It leaves open:\n')
    const verified = await runCommand('verify', bundleFile, '--policy', made)
    expect([verified.code, verified.stdout]).toEqual([0, expect.stringMatching(/^VERIFIED: /)])
    const strange = await stage.saveRelease('unknown.json', release, STRANGER_SECRET)
    for (const [given, wrong, reason] of [
      [['--release', strange, ...trusted, ...configuration], 1, 'release_not_signed'],
      [['--release', manifest, ...configuration], 2, '--release-key'],
      [['--release', manifest, ...trusted], 2, 'enclaves.configurations'],
      [[], 2, 'expected --release'],
      [[...configuration], 2, 'enclaves to name releases or measurements'],
      [['--pcr', `1=${'ab'.repeat(48)}`, ...configuration], 2, 'PCR0'],
    ] as const) {
      const run = await runCommand('policy', ...given)
      expect([run.code, run.stdout, run.stderr]).toEqual([
        wrong,
        '',
        expect.stringContaining(reason),
      ])
    }
  })

  describe('that names its configuration', () => {
    const ours = encodeHex(digestOf(BOOT_CONFIGURATION))

    it('a release that names its configuration needs no --configuration, and release show shows it', async () => {
      const named = await stage.saveRelease('named.json', buildRelease({ configuration: ours }))
      const { code, report } = await verify(bundleFile, '--release', named, ...trusted)
      expect([code, report.bundle.verdict]).toEqual([0, 'verified'])
      const shown = await runCommand('release', 'show', named)
      expect(shown.stdout).toContain(`configuration ${ours}`)
      const list = await stage.saveList('named-list.json', [
        buildEntry({ release: buildRelease({ configuration: ours }) }),
      ])
      expect((await runCommand('release', 'show', list)).stdout).toContain(`configuration ${ours}`)
    })

    it('verify fails bundle and record of an enclave that was booted with another configuration than the release', async () => {
      const named = await stage.saveRelease(
        'named.json',
        buildRelease({ configuration: 'ab'.repeat(32) }),
      )
      const ofBundle = await verify(bundleFile, '--release', named, ...trusted)
      expect([ofBundle.code, failedOf(ofBundle.checks)]).toEqual([1, ['expected configuration']])
      const ofRecord = await verify(recordFile, '--release', named, ...trusted)
      expect([ofRecord.code, failedOf(ofRecord.checks)]).toEqual([1, ['attestation']])
    })
  })

  it.each([
    ['other code', 'measurement_mismatch', () => [entryOf(buildOtherRelease())]],
    ['a revoked release', 'release_revoked', () => [buildEntry({ revoked: REVOKED })]],
    [
      'a release that ended',
      'release_expired',
      () => [buildEntry({ accepted_until: formatTime(MADE_AT.getTime()) })],
    ],
    [
      'a release of later',
      'release_not_yet',
      () => [buildEntry({ accepted_from: '2026-12-01T00:00:00Z' })],
    ],
  ])('verify fails a bundle and a record of %s with %s', async (_, reason, entries) => {
    const list = await stage.saveList('releases.json', entries())
    const ofBundle = await verify(bundleFile, '--release', list, ...trusted, ...configuration)
    expect([ofBundle.code, failedOf(ofBundle.checks)]).toEqual([1, ['measurements']])
    expect(JSON.stringify(ofBundle.report)).toContain(reason)
    const ofRecord = await verify(recordFile, '--release', list, ...trusted)
    expect([ofRecord.code, failedOf(ofRecord.checks)]).toEqual([1, ['attestation']])
    expect(JSON.stringify(ofRecord.report)).toContain(reason)
  })

  it('verify fails before anything is checked when no release was verified', async () => {
    const strange = await stage.saveRelease('strange.json', release, STRANGER_SECRET)
    const empty = await stage.saveList('empty.json', [])
    for (const [words, code, reason] of [
      [['--release', strange, ...trusted], 1, 'release_not_signed'],
      [['--release', empty, ...trusted], 1, 'the list has no accepted release'],
      [['--release', manifest], 2, '--release-key'],
      [[...trusted], 2, 'expected --release'],
      [['--release', manifest, '--release-signers', '1'], 2, '--release-key'],
      [['--release', manifest, ...trusted, '--release-signers', '2'], 2, 'different keys'],
      [
        ['--release', manifest, ...trusted, ...trusted, '--release-signers', '2'],
        2,
        'different keys',
      ],
      [['--release', manifest, ...trusted, '--release-signers', '0'], 2, ''],
      [['--release', manifest, ...trusted, '--any-measurement'], 2, 'expected one of'],
      [['--release', manifest, ...trusted, '--pcr', `0=${'ab'.repeat(48)}`], 2, 'expected one of'],
      [['--release', bundleFile, ...trusted], 2, 'expected format'],
      [['--release', stage.path('nothing'), ...trusted], 3, 'cannot read'],
      [['--release', manifest, '--release-key', '00'.repeat(32)], 2, 'prime order'],
      [['--release', manifest, '--release-key', stage.path('nothing')], 3, 'cannot read'],
    ] as const) {
      const run = await verify(bundleFile, ...words)
      expect([run.code, run.report], words.join(' ')).toEqual([code, null])
      expect(run.stderr).toContain(reason)
    }
  })
})

describe('affidavit attestation --release', () => {
  const at = ['--at', String(Math.floor(MADE_AT.getTime() / 1000))]

  it('attestation validates a document of the release, and names the release', async () => {
    const document = stage.path('document.bin')
    await writeFile(document, buildDocument())
    const words = ['attestation', document, ...root, ...at, '--release', manifest, ...trusted]
    const { code, stdout } = await runCommand(...words)
    expect(code).toBe(0)
    expect(stdout).toContain(`of        release 1.4.0 (commit ${release.git_commit})`)
    const json = JSON.parse((await runCommand(...words, '--json')).stdout)
    expect(json.facts.release).toEqual({ version: '1.4.0', git_commit: release.git_commit })
    expect(json.facts.measurements['0']).toBe(encodeHex(PCR_VALUES.get(0) ?? new Uint8Array()))
  })
})
