import { mkdirSync } from 'node:fs'
import { enableCompileCache } from 'node:module'
import { join } from 'node:path'
import { type GatewayConfig, readGatewayConfig } from './config.ts'
import { ConfigurationError } from './runtime/read-settings.ts'

/** The gateway's process: reads its configuration, then serves (src/start/serve.ts). */
const config = readConfigOrExit()
if (!config.isProduction) cacheCompiledCode(config.dataFolder)
const { serve } = await import('./start/serve.ts')
await serve(config)

function readConfigOrExit(): GatewayConfig {
  try {
    return readGatewayConfig()
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error
    console.error(error.message)
    process.exit(1)
  }
}

/**
 * Compiled code of the start before halves the time of the next. In the data folder: whoever can write there could change
 * what runs, so Node's own default, below the system's folder for temporary files, will not do.
 */
function cacheCompiledCode(dataFolder: string): void {
  try {
    mkdirSync(dataFolder, { recursive: true, mode: 0o700 })
    enableCompileCache(join(dataFolder, 'compiled'))
  } catch {
    // A folder that cannot be made is told of by whoever needs it.
  }
}
