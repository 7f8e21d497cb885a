import { readFileSync } from 'node:fs'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { streamText } from 'ai'
import { connect } from '../index.ts' // in your project: from 'affidavit'

const [url = '', apiKey = '', file = '', prompt = 'Hello'] = process.argv.slice(2)
const policy = JSON.parse(readFileSync(file, 'utf8'))

const affidavit = await connect({ url, apiKey, policy })
const { baseURL, fetch } = affidavit
const provider = createOpenAICompatible({ name: 'affidavit', baseURL, apiKey, fetch })

// The ai package leaves errors out of a text stream, so onError collects them.
const faults: unknown[] = []
const onError = ({ error }: { readonly error: unknown }) => void faults.push(error)
const stream = streamText({ model: provider('demo/echo'), prompt, onError })
for await (const part of stream.textStream) process.stdout.write(part)
if (faults.length > 0) throw faults[0]
console.log()
console.log(String(affidavit.proofs.latest))
