import { execFileSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { findAnvilBinary } from '#src/local/anvil-process.ts'

describe('findAnvilBinary', () => {
  it('findAnvilBinary finds the executable itself, not the script around it', async () => {
    const binary = await findAnvilBinary(process.platform, process.arch)
    expect(binary).not.toMatch(/\.m?js$/)
    expect(execFileSync(binary, ['--version'], { encoding: 'utf8' })).toMatch(/^anvil Version: 1\./)
  })

  it('findAnvilBinary says which platform has no build', async () => {
    await expect(findAnvilBinary('freebsd', 'x64')).rejects.toThrow(
      'anvil has no build for freebsd x64',
    )
  })
})
