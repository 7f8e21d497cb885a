import { describe, expect, it } from 'vitest'
import {
  type Held,
  inForceOf,
  NOTHING_HELD,
  readHeld,
  summaryOf,
  writeHeld,
} from '#src/web/kit/policy.ts'
import { type FormPolicy, NO_POLICY } from '#src/web/verify/job.ts'

const PCR0 = `PCR0=${'ab'.repeat(48)}`
const development: FormPolicy = { ...NO_POLICY, measurements: PCR0 }
const held = (own: Partial<FormPolicy>, rest: Partial<Held> = {}): Held => ({
  ...NOTHING_HELD,
  ...rest,
  own: { ...NO_POLICY, ...own },
})

describe('policy in force', () => {
  it('nothing is in force before something is given', () => {
    expect(inForceOf(NOTHING_HELD)).toEqual({ kind: 'none', policy: NO_POLICY })
  })

  it("a development gateway's word is in force until the reader says which enclaves to expect", () => {
    expect(inForceOf(held({}, { development })).kind).toBe('development')
    for (const own of [
      { measurements: 'PCR0=' },
      { anyMeasurement: true },
      { allowDebug: true },
      { releaseKeys: 'k' },
      { configurations: 'c' },
      { rootText: 'r' },
      { roots: [new File([''], 'root.pem')] },
    ])
      expect(inForceOf(held(own, { development }))).toEqual({
        kind: 'own',
        policy: { ...NO_POLICY, ...own },
      })
  })

  it('what the reader demands beside code, configuration and roots is added to it', () => {
    const { kind, policy } = inForceOf(held({ nonce: '0x' }, { development }))
    expect(kind).toBe('development')
    expect(policy).toMatchObject({ measurements: PCR0, nonce: '0x' })
  })

  it("a development gateway's word that the reader refused is not in force", () => {
    expect(inForceOf(held({}, { development, isDevelopmentRefused: true })).kind).toBe('none')
  })
})

describe('policy that outlast their page', () => {
  it('policy that outlast their page are read as they were written, files byte by byte', async () => {
    const revocationLists = [new File([Uint8Array.of(0x30, 0xff, 0)], 'list.crl')]
    const releases = [new File(['{"é": 1}'], 'release.json')]
    const given = held({ measurements: PCR0, revocationLists, releases }, { place: 'Verify' })
    const read = readHeld(await writeHeld(given))
    expect(read).toMatchObject({ place: 'Verify', own: { measurements: PCR0 } })
    const [list] = read.own.revocationLists
    expect(list?.name).toBe('list.crl')
    expect(new Uint8Array((await list?.arrayBuffer()) ?? new ArrayBuffer())).toEqual(
      Uint8Array.of(0x30, 0xff, 0),
    )
    expect(await read.own.releases[0]?.text()).toBe('{"é": 1}')
  })

  it("a development gateway's word does not outlast its page", async () => {
    const text = await writeHeld(held({}, { development }))
    expect(text).not.toContain(PCR0)
    expect(readHeld(text).development).toBeNull()
  })

  it.each(['', '{', 'null', '{"own": {}}', '{"own": {"releases": 1}}'])(
    'what no page wrote holds nothing: %s',
    (text) => {
      expect(readHeld(text)).toEqual(NOTHING_HELD)
    },
  )

  it('a member of another form holds nothing', async () => {
    const text = await writeHeld(held({ measurements: PCR0 }))
    expect(readHeld(text.replace(`"${PCR0}"`, '7'))).toEqual(NOTHING_HELD)
  })
})

describe('the summary of policy', () => {
  it('the summary of policy counts what is given, and names what widens', () => {
    expect(
      summaryOf(
        held({
          measurements: `${PCR0}\n\n${PCR0}`,
          configurations: 'a\nb',
          anyMeasurement: true,
          rootText: 'r',
        }).own,
      ),
    ).toEqual(['2 sets of measurements', 'any code', '2 boot configurations', 'own roots'])
  })
})
