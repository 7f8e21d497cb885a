import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { needProgram } from '../../support/needs.ts'

const run = promisify(execFile)
const folder = join(import.meta.dirname, '../../../enclave/image/guest')
const SHELLCHECK = needProgram('shellcheck')

describe.each(['boot-init', 'enclave-init'])('%s', (name) => {
  const path = join(folder, name)

  it('a guest script is readable by a POSIX shell', async () => {
    expect(await run('sh', ['-n', path])).toEqual({ stdout: '', stderr: '' })
    expect(await readFile(path, 'utf8')).toMatch(/^#!\/bin\/busybox sh\n/)
  })

  it('a guest script stops at the first command that fails', async () => {
    expect(await readFile(path, 'utf8')).toMatch(/^set -eu$/m)
  })

  it.runIf(SHELLCHECK.isMet)(
    SHELLCHECK.title('a guest script has nothing that shellcheck objects to'),
    async () => {
      expect((await run('shellcheck', [path])).stdout).toBe('')
    },
  )
})
