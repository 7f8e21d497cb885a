import type { Command } from 'commander'
import { createCommandLine } from './command-line.ts'
import { registerAccounts } from './commands/accounts.ts'
import { registerAdminLog } from './commands/admin-log.ts'
import { registerBudgets } from './commands/budgets.ts'
import { checkerCommands } from './commands/checker.ts'
import { registerCompletions } from './commands/completions.ts'
import { registerContent } from './commands/content.ts'
import { registerContract } from './commands/contract.ts'
import { registerEnclaves } from './commands/enclaves.ts'
import { registerErase } from './commands/erase.ts'
import { registerKeys } from './commands/keys.ts'
import { registerMigrate } from './commands/migrate.ts'
import { registerNodeCommand } from './commands/node.ts'
import { registerRelayer } from './commands/relayer.ts'
import { registerUsage } from './commands/usage.ts'

/**
 * Each file in commands/ registers its command here. A command of the package `affidavit` is
 * registered in checkerCommands.
 */
export function createProgram(): Command {
  return createCommandLine({
    name: 'affidavit',
    description: 'Check signed evidence of completions, and operate the gateway that issues it.',
    commands: {
      // The module is loaded only when needed: it bundles code.
      ...checkerCommands(async () => (await import('../web/verifier.ts')).openVerifier()),
      'Operate a gateway:': [
        registerKeys,
        registerAccounts,
        registerBudgets,
        registerAdminLog,
        registerUsage,
        registerErase,
        registerContent,
        registerEnclaves,
        registerRelayer,
        registerContract,
        registerMigrate,
      ],
      'Contribute a machine:': [registerNodeCommand],
      'This program:': [registerCompletions],
    },
  })
}
