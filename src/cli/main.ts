#!/usr/bin/env node
import { runCommandLine } from './command-line.ts'
import { createProgram } from './program.ts'

await runCommandLine(createProgram())
