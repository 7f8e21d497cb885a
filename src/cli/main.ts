#!/usr/bin/env node
import { mkdirSync } from 'node:fs'
import { enableCompileCache } from 'node:module'
import { join } from 'node:path'

cacheCompiledCode(join(import.meta.dirname, '../../node_modules/.cache/affidavit'))
// From here on, the compiled form of all loaded code is cached.
const { runCommandLine } = await import('./command-line.ts')
const { createProgram } = await import('./program.ts')
await runCommandLine(createProgram())

/**
 * The cache from an earlier run saves a third of the next run's time. It is beside the packages: a
 * user who can write there can change the program anyway.
 */
function cacheCompiledCode(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    enableCompileCache(folder)
  } catch {
    // Without write access, the command runs without the cache.
  }
}
