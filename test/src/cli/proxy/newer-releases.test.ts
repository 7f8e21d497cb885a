import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, expect, it, vi } from 'vitest'
import { AffidavitError, type AffidavitErrorCode } from '#client/errors.ts'
import { followReleases } from '#src/cli/proxy/newer-releases.ts'
import { folderOfTest } from '../../../support/folders.ts'

let folder: string
beforeEach(async () => {
  folder = folderOfTest()
})

/** Returns what the proxy prints after a SIGHUP, and the releases that the client was given. */
async function hangUp(text: string, refusal?: AffidavitErrorCode) {
  const file = join(folder, 'policy.json')
  await writeFile(file, text)
  const taken: unknown[] = []
  const said = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
  const updateReleases = async (releases: unknown) => {
    taken.push(releases)
    if (refusal !== undefined) throw new AffidavitError(refusal, 'the reason')
  }
  const stop = followReleases({ updateReleases }, file)
  process.emit('SIGHUP')
  await expect.poll(() => said.mock.calls.length).toBe(1)
  stop()
  const [line] = said.mock.calls.map(([bytes]) => String(bytes))
  said.mockRestore()
  return { taken, line: line?.replace(`${file}: `, '') }
}

const NEWER = JSON.stringify({ enclaves: { releases: [{ version: 2 }], releaseKeys: [] } })

it('SIGHUP makes the proxy read the policy again and use its releases', async () => {
  expect(await hangUp(NEWER)).toEqual({
    taken: [[{ version: 2 }]],
    line: 'its releases are in use now\n',
  })
})

it.each([
  ['older_releases', 'its releases are refused, and the old ones stay in use: the reason\n'],
  ['invalid_options', 'its releases are refused, and the old ones stay in use: the reason\n'],
  ['no_notary', 'its releases are in use now, but no enclave passes the checks: the reason\n'],
] as const)('SIGHUP prints what the client says about the releases: %s', async (code, line) => {
  expect((await hangUp(NEWER, code)).line).toBe(line)
})

it.each([
  ['no JSON', '{', 'policy.json: policy: '],
  ['no releases', '{"enclaves":{"measurements":[]}}', 'expected enclaves.releases'],
])('SIGHUP keeps the old releases if the file has %s', async (_, text, reason) => {
  const { taken, line } = await hangUp(text)
  expect(taken).toEqual([])
  expect(line).toMatch(/^its releases are refused, and the old ones stay in use: /)
  expect(line).toContain(reason)
})
