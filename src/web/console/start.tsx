import './console.css'
import { showPage } from '../kit/frame.tsx'
import { takeDevelopmentPolicy } from '../verify/development-policy.ts'
import { fillHere } from '../verify/fill-here.ts'
import { ConsolePage } from './console-page.tsx'

void takeDevelopmentPolicy(fillHere).then(() => showPage(<ConsolePage />))
