import { randomBytes } from 'node:crypto'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { StartFailure } from '#src/runtime/starting.ts'
import { openContentCipher, parseContentKeys } from '#src/storage/content-keys.ts'
import { contentFaults, contentKeysOf } from '#src/storage/settings.ts'

const KEY = randomBytes(32)
const HEX = KEY.toString('hex')
const BASE64 = KEY.toString('base64')

const idsOf = (text: string) => {
  const keys = parseContentKeys(text)
  return typeof keys === 'string' ? keys : keys.map(({ id }) => id)
}

it('parseContentKeys takes hex of either case and base64, between comments and blank lines', () => {
  const [id] = idsOf(HEX)
  expect(id).toMatch(/^[0-9a-f]{16}$/)
  const other = randomBytes(32).toString('hex')
  for (const text of [HEX.toUpperCase(), BASE64, `# of 2026\n\n  ${BASE64}\r\n`])
    expect(idsOf(text)).toEqual([id])
  expect(idsOf(`${HEX}\n${other}\n`)).toEqual([id, ...idsOf(other)])
})

it.each([
  ['nothing', '\n# none yet\n', 'expected a key, got none'],
  ['a short key', `${HEX}\n${HEX.slice(2)}`, 'in line 2, and nothing else'],
  ['two keys on a line', `${HEX} ${HEX}`, 'in line 1, and nothing else'],
  ['base64 with bits that are not used', `${BASE64.slice(0, 42)}9=`, 'in line 1'],
  ['the same key twice', `${HEX}\n${BASE64}`, 'each key once, got the key of line 2 again'],
])('parseContentKeys refuses %s without showing it', (_, text, message) => {
  const fault = parseContentKeys(text)
  expect(fault).toContain(message)
  expect(fault).not.toContain(HEX.slice(2, 20))
})

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-content-'))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const failureOf = async (source: Parameters<typeof openContentCipher>[0], timeoutMs?: number) => {
  const failure = await openContentCipher(source, timeoutMs).catch((error: unknown) => error)
  if (!(failure instanceof StartFailure)) throw new Error('expected a StartFailure')
  expect(failure.message).not.toContain(HEX)
  return failure.message
}

it('the keys of stored content come from a file that others have no access to', async () => {
  const file = join(folder, 'keys')
  await writeFile(file, `${HEX}\n`, { mode: 0o640 })
  expect((await openContentCipher({ file }))?.keyIds).toHaveLength(1)
  await chmod(file, 0o644)
  expect(await failureOf({ file })).toContain('can be used by all users')
  expect(await failureOf({ file: join(folder, 'none') })).toContain('cannot be read (ENOENT)')
})

it('the keys of stored content come from a program, whose arguments no shell reads', async () => {
  const command = ['/usr/bin/printf', '%s\n', HEX] as const
  expect((await openContentCipher({ command }))?.keyIds).toHaveLength(1)
  const injected = ['/bin/echo', HEX, ';', 'echo', BASE64] as const
  expect(await failureOf({ command: injected })).toContain('in line 1, and nothing else')
})

it('the keys of stored content are waited for so long, and no longer', async () => {
  const sh = (script: string) => ({ command: ['/bin/sh', '-c', script] }) as const
  expect(await failureOf(sh(`echo ${HEX}; exit 3`))).toContain('ended with exit code 3')
  expect(await failureOf(sh('exec sleep 60'), 50)).toContain('took too long')
  expect(await failureOf(sh('yes'))).toContain('printed too much')
  expect(await failureOf({ command: ['/nowhere'] })).toContain('cannot be run (ENOENT)')
})

it('the keys of stored content are named by one variable', () => {
  const both = { CONTENT_KEY_FILE: 'keys', CONTENT_KEY_COMMAND: '/bin/kms  --key  7' }
  expect(contentFaults(both)).toHaveLength(1)
  expect(contentKeysOf({ CONTENT_KEY_COMMAND: both.CONTENT_KEY_COMMAND })).toEqual({
    command: ['/bin/kms', '--key', '7'],
  })
  expect(contentKeysOf({})).toBeNull()
})
