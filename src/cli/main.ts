#!/usr/bin/env node
import { mkdirSync } from 'node:fs'
import { enableCompileCache } from 'node:module'
import { join } from 'node:path'

cacheCompiledCode(join(import.meta.dirname, '../../node_modules/.cache/affidavit'))
// From here on, the compiled form of all loaded code is stored in the cache.
const { runCommandLine } = await import('./command-line.ts')
const { createProgram } = await import('./program.ts')
await runCommandLine(createProgram())

/**
 * With the cache from an earlier run, the next run takes a third less time. The cache is stored
 * beside the packages. A user who can write there could also change the program itself.
 */
function cacheCompiledCode(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    enableCompileCache(folder)
  } catch {
    // Without write access, the command runs without the cache.
  }
}
