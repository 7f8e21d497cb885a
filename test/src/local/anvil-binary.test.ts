import { execFileSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { findAnvilBinary } from '../../../src/local/anvil-binary.ts'

describe('findAnvilBinary', () => {
  it('finds the executable itself, not the script around it', () => {
    const binary = findAnvilBinary(process.platform, process.arch)
    expect(binary).not.toMatch(/\.m?js$/)
    expect(execFileSync(binary, ['--version'], { encoding: 'utf8' })).toMatch(/^anvil Version: 1\./)
  })

  it('says which platform has no build', () => {
    expect(() => findAnvilBinary('freebsd', 'x64')).toThrow('anvil has no build for freebsd x64')
  })
})
