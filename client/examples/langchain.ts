import { readFileSync } from 'node:fs'
import { ChatOpenAI } from '@langchain/openai'
import { connect } from '../index.ts' // in your project: from 'affidavit'

const [url = '', apiKey = '', file = '', prompt = 'Hello'] = process.argv.slice(2)
const policy = JSON.parse(readFileSync(file, 'utf8'))

const affidavit = await connect({ url, apiKey, policy })
const { baseURL, fetch } = affidavit
const model = new ChatOpenAI({ model: 'demo/echo', apiKey, configuration: { baseURL, fetch } })

for await (const part of await model.stream(prompt)) process.stdout.write(part.text)
console.log()
console.log(String(affidavit.proofs.latest))
