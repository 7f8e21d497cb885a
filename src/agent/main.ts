import { openProcessLogger } from '../observability/logger.ts'
import { ConfigurationError } from '../runtime/read-settings.ts'
import { readAgentConfig } from './config.ts'
import { AgentFailure } from './registration.ts'
import { runAgent } from './run-agent.ts'

/** A parent process starts and restarts this program. People use `affidavit node run` instead. */
try {
  const config = readAgentConfig()
  const log = await openProcessLogger(config.logLevel)
  await runAgent(config, { log })
  process.exit(0)
} catch (fault) {
  if (!(fault instanceof ConfigurationError || fault instanceof AgentFailure)) throw fault
  console.error(fault.message)
  process.exit(1)
}
